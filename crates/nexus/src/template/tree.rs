//! What can only be seen of the whole: where links lead, groups that would contain themselves, groups of two classes.
//!
//! Each thing is looked at once: a million of them take seconds.

use super::{Group, Mistake, Module, Node};
use crate::hdf::names::short;
use crate::limits::MISTAKES_MAX;
use settings::nearest;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Links on the way to a link: more is a circle.
const HOPS_MAX: usize = 16;
/// Things among which one is searched that a link may mean: five times a large instrument. Among more the search would take
/// longer than everything else.
const SUGGEST_MAX: usize = 50_000;

#[derive(Clone, Debug, PartialEq)]
enum Thing {
    Group,
    Dataset,
    /// To a path that may itself pass links.
    Link(Vec<String>),
    /// The same of the static file. That it leads nowhere is nobody's mistake: what it names may come, or not.
    Soft(Vec<String>),
    /// In another file, which is never opened here.
    Outside,
    /// A link that was refused: what it stands for is not known.
    Refused,
}

/// Why a path leads nowhere.
enum Nowhere {
    /// The group in which the way ends has no such thing.
    In(String),
    /// The way goes through what is no group.
    Through,
    /// The way goes on in another file.
    Outside,
    /// It is not known where.
    Unknown,
}

/// A `depends_on` of the template.
pub(super) struct Depends {
    /// Path of the group in which it stands.
    pub(super) group: String,
    /// Whether it is the group's own: its name then may be one beside the group as well.
    pub(super) is_of_group: bool,
    /// The object that it names.
    pub(super) on: String,
    /// Where it stands in the template, JSON pointer.
    pub(super) pointer: String,
}

/// Objects that were refused already: that links want them is no second mistake.
pub(super) struct Unsure<'a> {
    /// Groups in which something was refused that has no name.
    pub(super) lost: &'a HashSet<String>,
    /// Paths of those that have one.
    pub(super) refused: &'a [String],
    /// False where the static file was refused: whatever is wanted may be there.
    pub(super) is_whole: bool,
}

impl Unsure<'_> {
    /// Whether a group may have what is not seen in it.
    fn may_have(&self, group: &str) -> bool {
        !self.is_whole || self.lost.contains(group)
    }
}

/// What is wrong and is taken all the same: where, why, and what is made of it.
pub(super) type Taken = (String, String, &'static str);

/// Checks the tree and makes each link's target the path of the thing itself. With `is_lenient` a link to nothing is no
/// mistake: it is left out. So is a `depends_on` that leads nowhere, which stays.
pub(super) fn check(
    root: &mut Group,
    unsure: &Unsure<'_>,
    depends: &[Depends],
    is_lenient: bool,
    mistakes: &mut Vec<Mistake>,
) -> Vec<Taken> {
    let mut tree = Tree { mistakes: std::mem::take(mistakes), is_lenient, ..Tree::default() };
    tree.things.insert(String::new(), Thing::Group);
    tree.gather(root, &mut Vec::new(), "");
    for refused in unsure.refused {
        tree.things.entry(refused.clone()).or_insert(Thing::Refused);
    }
    let (mut targets, mut to_nothing) = (HashMap::new(), HashSet::new());
    let links = std::mem::take(&mut tree.links);
    for (link, pointer) in &links {
        let Some(Thing::Link(steps)) = tree.things.get(link) else {
            continue;
        };
        let pointer = pointer.clone();
        match tree.resolve(steps) {
            Ok(target) if tree.things.get(&path(&target)) == Some(&Thing::Group) && is_inside(link, &path(&target)) => {
                let cause = format!("the group `{}` would contain itself", short(&path(&target)));
                tree.wrong_link(link, pointer, cause, "link to something below it");
            }
            Ok(target) if tree.things.get(&path(&target)) == Some(&Thing::Outside) => {
                let cause = format!("`{}` is in another file", short(&path(&target)));
                tree.wrong(pointer, cause, "give this link the same \"file\" and \"source\"");
            }
            Ok(target) => {
                targets.insert(link.clone(), target);
            }
            Err(nowhere) => {
                let wanted = path(steps);
                if is_lenient && !pointer.is_empty() {
                    to_nothing.insert(link.clone());
                }
                tree.leads_nowhere(&nowhere, &wanted, pointer, unsure);
            }
        }
        if tree.mistakes.len() >= MISTAKES_MAX {
            break;
        }
    }
    for (steps, pointer) in std::mem::take(&mut tree.again) {
        if let Err(nowhere) = tree.resolve(&steps) {
            tree.leads_nowhere(&nowhere, &path(&steps), pointer, unsure);
        }
    }
    depends.iter().for_each(|one| tree.check_depends(one, unsure));
    for (group, link) in circles(&tree, &targets, &links) {
        let cause = format!("links make the group `{}` contain itself", short(&group));
        let (link, pointer) = &links[link];
        tree.wrong_link(link, pointer.clone(), cause, "remove this one, or another of them");
    }
    rewrite(root, &mut String::new(), &mut targets, &to_nothing);
    *mistakes = tree.mistakes;
    tree.taken
}

/// One group of what the static file and the template have: groups of one name are one, and what the template says counts.
pub(super) fn joined(of_static: Group, mut own: Group) -> Group {
    if of_static.from_static.is_none() {
        return own;
    }
    let is_group = |node: &Node| matches!(node, Node::Group(_));
    let mut own_groups: HashMap<String, Group> = HashMap::new();
    if of_static.children.iter().any(is_group) {
        let mut names: HashSet<&str> = of_static.children.iter().filter_map(group_name).collect();
        // Of two of a name, which was told, the second stays beside the first: what is in it is looked at, too.
        let (both, rest): (Vec<Node>, Vec<Node>) =
            own.children.into_iter().partition(|node| group_name(node).is_some_and(|name| names.remove(name)));
        own.children = rest;
        own_groups.extend(both.into_iter().filter_map(|node| match node {
            Node::Group(group) => Some((group.name.clone(), group)),
            _ => None,
        }));
    }
    let both = of_static.children.into_iter().map(|node| match node {
        Node::Group(inner) => {
            let of_both = own_groups.remove(&inner.name);
            let of_both = of_both.unwrap_or_else(|| Group { name: inner.name.clone(), ..Group::default() });
            Node::Group(joined(inner, of_both))
        }
        other => other,
    });
    let children = both.chain(own.children).collect();
    Group { children, from_static: of_static.from_static, ..own }
}

fn group_name(node: &Node) -> Option<&str> {
    if let Node::Group(group) = node { Some(&group.name) } else { None }
}

/// The path that a link of the static file names, as names from the root: it knows no `..`.
pub(super) fn soft_steps(target: &str, here: &[String]) -> Vec<String> {
    let from = if target.starts_with('/') { &[] } else { here };
    let steps = target.split('/').filter(|step| !matches!(*step, "" | "."));
    from.iter().cloned().chain(steps.map(str::to_owned)).collect()
}

#[derive(Default)]
struct Tree {
    things: HashMap<String, Thing>,
    /// Path of each link, and its place in the template.
    links: Vec<(String, String)>,
    /// Links whose name appears twice: their steps and places.
    again: Vec<(Vec<String>, String)>,
    mistakes: Vec<Mistake>,
    is_lenient: bool,
    taken: Vec<Taken>,
}

fn path(steps: &[String]) -> String {
    steps.iter().map(|s| format!("/{s}")).collect()
}

fn is_inside(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
}

impl Tree {
    fn wrong(&mut self, pointer: String, cause: impl Into<String>, hint: impl Into<String>) {
        if self.mistakes.len() < MISTAKES_MAX {
            self.mistakes.push(Mistake { pointer, cause: cause.into(), hint: hint.into(), ..Mistake::default() });
        }
    }

    /// A mistake, or where the ESS file writer takes it what is made of it.
    fn wrong_but(&mut self, pointer: String, cause: String, hint: String, made: &'static str) {
        if !self.is_lenient {
            self.wrong(pointer, cause, hint);
        } else if self.taken.len() < MISTAKES_MAX {
            self.taken.push((pointer, cause, made));
        }
    }

    /// A link of the static file has no place in the template.
    fn wrong_link(&mut self, link: &str, pointer: String, cause: String, hint: &str) {
        let cause = if pointer.is_empty() { format!("the link `{link}` of the static file: {cause}") } else { cause };
        self.wrong(pointer, cause, hint);
    }

    /// Everything with its path; names that stand twice were told.
    fn gather(&mut self, group: &Group, here: &mut Vec<String>, at: &str) {
        let mut first: Option<&Module> = None;
        for node in &group.children {
            match node {
                Node::Group(inner) => {
                    let inside = format!("{at}/{}", inner.name);
                    self.things.insert(inside.clone(), Thing::Group);
                    if let Some(metadata) = inner.metadata() {
                        self.things.insert(format!("{at}/{metadata}"), Thing::Group);
                    }
                    here.push(inner.name.clone());
                    self.gather(inner, here, &inside);
                    here.pop();
                }
                Node::Dataset { name, .. } | Node::Static { name } => {
                    self.things.insert(format!("{at}/{name}"), Thing::Dataset);
                }
                Node::Soft { name, target } => {
                    self.things.insert(format!("{at}/{name}"), Thing::Soft(soft_steps(target, here)));
                }
                Node::Outside { name, file, .. } => {
                    let thing = if file.is_empty() { Thing::Refused } else { Thing::Outside };
                    self.things.entry(format!("{at}/{name}")).or_insert(thing);
                }
                Node::Link { name, target, pointer } => {
                    let pointer = if pointer.is_empty() { String::new() } else { format!("{pointer}/source") };
                    let source = target.first().map(String::as_str).unwrap_or_default();
                    let link = format!("{at}/{name}");
                    match steps(source, here) {
                        // A name that appears twice: this one is looked at too, and leads nowhere else.
                        Ok(steps) if self.things.contains_key(&link) => self.again.push((steps, pointer)),
                        Ok(steps) => {
                            self.things.insert(link.clone(), Thing::Link(steps));
                            self.links.push((link, pointer));
                        }
                        Err(cause) => {
                            self.things.entry(link).or_insert(Thing::Refused);
                            self.wrong(pointer, cause, "`source` is a path inside this file");
                        }
                    }
                }
                Node::Times { start, end } => {
                    for (_, name) in [(start, "start_time"), (end, "end_time")].into_iter().filter(|(is, _)| **is) {
                        self.things.insert(format!("{at}/{name}"), Thing::Dataset);
                    }
                }
                Node::Module(module) => {
                    for name in module.datasets() {
                        self.things.insert(format!("{at}/{name}"), Thing::Dataset);
                    }
                    let class = module.class();
                    let other = first.get_or_insert(module);
                    if other.class() != class {
                        let cause = format!("the group is {} for `{}` already", other.class(), other.word());
                        let hint = format!("put `{}` ({class}) in its own group", module.word());
                        self.wrong(module.pointer.clone(), cause, hint);
                    }
                }
            }
        }
    }

    /// That a place is that of a thing that is there: readers follow the chain, and find no place for what hangs on nothing.
    fn check_depends(&mut self, depends: &Depends, unsure: &Unsure<'_>) {
        if matches!(depends.on.as_str(), "" | ".") {
            return;
        }
        let here: Vec<String> = depends.group.split('/').skip(1).map(str::to_owned).collect();
        let above = depends.is_of_group.then(|| &here[..here.len().saturating_sub(1)]);
        let is_there = |from: &[String]| match steps(&depends.on, from).map(|steps| self.resolve(&steps)) {
            Ok(Ok(_) | Err(Nowhere::Unknown | Nowhere::Outside)) => true,
            Ok(Err(Nowhere::In(group))) => unsure.may_have(&group),
            Ok(Err(Nowhere::Through)) | Err(_) => false,
        };
        if is_there(&here) || above.is_some_and(is_there) {
            return;
        }
        let wanted =
            steps(&depends.on, above.unwrap_or(&here)).map_or_else(|_| depends.on.clone(), |steps| path(&steps));
        let hint = self
            .meant(&wanted)
            .unwrap_or_else(|| "`depends_on` is a path from its group or from the root; `.` ends the chain".to_owned());
        let cause = if self.is_lenient {
            "`depends_on` names nothing that exists".to_owned()
        } else {
            format!("`depends_on` names `{}`, and there is no `{}`", short(&depends.on), short(&wanted))
        };
        self.wrong_but(depends.pointer.clone(), cause, hint, "it is written as it is");
    }

    fn leads_nowhere(&mut self, nowhere: &Nowhere, wanted: &str, pointer: String, unsure: &Unsure<'_>) {
        let is_told = match nowhere {
            Nowhere::Unknown => true,
            Nowhere::In(group) => unsure.may_have(group),
            Nowhere::Through | Nowhere::Outside => false,
        };
        if is_told {
            return;
        }
        // A link to itself is there, and so is one to another that leads nowhere.
        let (cause, hint) = if self.things.contains_key(wanted) {
            let hint = "link to a group or a dataset, not to itself, directly or through other links";
            (format!("`{}` is a broken link", short(wanted)), hint.to_owned())
        } else {
            (format!("there is no `{}`", short(wanted)), self.instead(wanted))
        };
        let cause = if self.is_lenient { "a link is broken".to_owned() } else { cause };
        self.wrong_but(pointer, cause, hint, "the link is left out");
    }

    /// Suggests an object that is there and has nearly this path.
    fn meant(&self, wanted: &str) -> Option<String> {
        if self.things.len() > SUGGEST_MAX {
            return None;
        }
        let mut all: Vec<&str> = self.things.keys().map(String::as_str).collect();
        all.sort_unstable();
        nearest(wanted, all).map(|meant| format!("did you mean `{meant}`?"))
    }

    /// The hint for a link that leads nowhere.
    fn instead(&self, wanted: &str) -> String {
        if wanted.contains(":/") {
            "a link to another file has \"file\" beside \"source\"".to_owned()
        } else if let Some(meant) = self.meant(wanted) {
            meant
        } else {
            "`source` is a path from the group of the link, `..` is the group above".to_owned()
        }
    }

    /// The thing itself at the end of a path, through links.
    fn resolve(&self, steps: &[String]) -> Result<Vec<String>, Nowhere> {
        let mut rest: Vec<String> = steps.iter().rev().cloned().collect();
        let (mut here, mut at, mut hops) = (Vec::new(), String::new(), 0);
        // Steps that are left when those of the last link are done.
        let mut own = usize::MAX;
        while let Some(step) = rest.pop() {
            let length = at.len();
            at.extend(["/", &step]);
            match self.things.get(&at) {
                Some(Thing::Link(target)) => {
                    hops += 1;
                    if hops > HOPS_MAX {
                        return Err(Nowhere::Through);
                    }
                    own = rest.len();
                    rest.extend(target.iter().rev().cloned());
                    here.clear();
                    at.clear();
                }
                Some(Thing::Soft(target)) => {
                    hops += 1;
                    if hops > HOPS_MAX {
                        return Err(Nowhere::Through);
                    }
                    // Nobody tells where it leads: who goes through it does.
                    if rest.len() < own {
                        own = usize::MAX;
                    }
                    rest.extend(target.iter().rev().cloned());
                    here.clear();
                    at.clear();
                }
                Some(Thing::Refused) => return Err(Nowhere::Unknown),
                Some(Thing::Outside) if !rest.is_empty() => return Err(Nowhere::Outside),
                Some(Thing::Dataset) if !rest.is_empty() => return Err(Nowhere::Through),
                Some(_) => here.push(step),
                // That link leads nowhere itself, and is reported.
                None if rest.len() >= own => return Err(Nowhere::Unknown),
                None => {
                    at.truncate(length);
                    return Err(Nowhere::In(at));
                }
            }
        }
        Ok(here)
    }
}

/// A path as names from the root.
fn steps(source: &str, here: &[String]) -> Result<Vec<String>, String> {
    if source.is_empty() || source.contains('\0') {
        return Err("an empty path, or one with a NUL byte".into());
    }
    let mut out = if source.starts_with('/') { Vec::new() } else { here.to_vec() };
    for step in source.split('/') {
        match step {
            "" | "." => (),
            ".." => {
                if out.pop().is_none() {
                    return Err(format!("`{}` leads out of the file", short(source)));
                }
            }
            name => out.push(name.to_owned()),
        }
    }
    Ok(out)
}

/// Groups that contain themselves through links, each with the link that closes the circle.
fn circles(tree: &Tree, targets: &HashMap<String, Vec<String>>, links: &[(String, String)]) -> Vec<(String, usize)> {
    // From each group that holds a link, whatever deep, to the group that the link names.
    let mut inside: BTreeMap<&str, Vec<(String, usize)>> = BTreeMap::new();
    for (number, (link, _)) in links.iter().enumerate() {
        let Some(target) = targets.get(link).map(|target| path(target)) else { continue };
        if tree.things.get(&target) != Some(&Thing::Group) {
            continue;
        }
        let mut holder = link.as_str();
        while let Some(cut) = holder.rfind('/') {
            holder = &holder[..cut];
            inside.entry(holder).or_default().push((target.clone(), number));
        }
    }
    // A group reached from itself: depth first, each group entered once.
    let mut found: Vec<(String, usize)> = Vec::new();
    let (mut done, mut open) = (HashSet::new(), HashSet::new());
    for start in inside.keys() {
        let mut stack = vec![((*start).to_owned(), 0)];
        open.insert((*start).to_owned());
        while let Some((group, next)) = stack.pop() {
            if done.contains(&group) {
                open.remove(&group);
                continue;
            }
            match inside.get(group.as_str()).and_then(|targets| targets.get(next)) {
                Some((target, link)) => {
                    stack.push((group, next + 1));
                    if open.contains(target) {
                        if found.iter().all(|(_, known)| known != link) {
                            found.push((target.clone(), *link));
                        }
                        if found.len() >= MISTAKES_MAX {
                            return found;
                        }
                    } else if !done.contains(target) {
                        open.insert(target.clone());
                        stack.push((target.clone(), 0));
                    }
                }
                None => {
                    open.remove(&group);
                    done.insert(group);
                }
            }
        }
    }
    found
}

/// Gives links their targets, and removes those that lead to nothing.
fn rewrite(
    group: &mut Group,
    here: &mut String,
    targets: &mut HashMap<String, Vec<String>>,
    to_nothing: &HashSet<String>,
) {
    let length = here.len();
    if !to_nothing.is_empty() {
        let leads =
            |node: &Node| !matches!(node, Node::Link { name, .. } if to_nothing.contains(&format!("{here}/{name}")));
        group.children.retain(leads);
    }
    for node in &mut group.children {
        match node {
            Node::Group(inner) => {
                here.extend(["/", &inner.name]);
                rewrite(inner, here, targets, to_nothing);
            }
            Node::Link { name, target, .. } => {
                here.extend(["/", name]);
                if let Some(found) = targets.remove(here.as_str()) {
                    *target = found;
                }
            }
            _ => (),
        }
        here.truncate(length);
    }
}
