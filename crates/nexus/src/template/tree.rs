//! What can only be seen of the whole: where links lead, groups that would contain themselves, groups of two classes.
//!
//! Each thing is looked at once: a million of them take seconds.

use super::check::short;
use super::nearest::nearest;
use super::{Group, Mistake, Module, Node};
use crate::limits::MISTAKES_MAX;
use std::collections::{HashMap, HashSet};

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
    /// In another file, which is never opened here.
    Outside,
}

/// Checks the tree and makes each link's target the path of the thing itself. `lost` are paths of groups in which something
/// was refused already: what links want there is not looked for.
pub(super) fn check(root: &mut Group, lost: &HashSet<String>, mistakes: &mut Vec<Mistake>) {
    let mut tree = Tree { mistakes: std::mem::take(mistakes), ..Tree::default() };
    tree.things.insert(String::new(), Thing::Group);
    tree.gather(root, &mut Vec::new(), "");
    let mut targets = HashMap::new();
    for (link, pointer) in std::mem::take(&mut tree.links) {
        let Some(Thing::Link(steps)) = tree.things.get(&link) else {
            continue;
        };
        match tree.resolve(steps) {
            Ok(target)
                if tree.things.get(&path(&target)) == Some(&Thing::Group) && is_inside(&link, &path(&target)) =>
            {
                let cause = format!("the group `{}` would contain itself", short(&path(&target)));
                tree.wrong(pointer, cause, "link to something below it");
            }
            Ok(target) if tree.things.get(&path(&target)) == Some(&Thing::Outside) => {
                let cause = format!("`{}` lies in another file", short(&path(&target)));
                tree.wrong(pointer, cause, "give this link the same \"file\" and \"source\"");
            }
            Ok(target) => {
                targets.insert(link, target);
            }
            Err(Some(group)) if lost.contains(&group) => (),
            Err(_) => {
                let wanted = path(steps);
                let hint = tree.instead(&wanted);
                tree.wrong(pointer, format!("there is no `{}`", short(&wanted)), hint);
            }
        }
        if tree.mistakes.len() >= MISTAKES_MAX {
            break;
        }
    }
    if let Some(group) = circle(&tree, &targets) {
        let cause = format!("links make the group `{}` contain itself", short(&group));
        tree.wrong(String::new(), cause, "remove one of them");
    }
    rewrite(root, &mut String::new(), &mut targets);
    *mistakes = tree.mistakes;
}

#[derive(Default)]
struct Tree {
    things: HashMap<String, Thing>,
    /// Path of each link, and its place in the template.
    links: Vec<(String, String)>,
    mistakes: Vec<Mistake>,
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
            self.mistakes.push(Mistake { pointer, cause: cause.into(), hint: hint.into() });
        }
    }

    /// Everything with its path; names that stand twice were told.
    fn gather(&mut self, group: &Group, here: &mut Vec<String>, at: &str) {
        let mut first: Option<&Module> = None;
        for node in &group.children {
            match node {
                Node::Group(inner) => {
                    let inside = format!("{at}/{}", inner.name);
                    self.things.insert(inside.clone(), Thing::Group);
                    here.push(inner.name.clone());
                    self.gather(inner, here, &inside);
                    here.pop();
                }
                Node::Dataset { name, .. } => {
                    self.things.insert(format!("{at}/{name}"), Thing::Dataset);
                }
                Node::Outside { name, .. } => {
                    self.things.insert(format!("{at}/{name}"), Thing::Outside);
                }
                Node::Link { name, target, pointer } => {
                    let pointer = format!("{pointer}/source");
                    let source = target.first().map(String::as_str).unwrap_or_default();
                    let link = format!("{at}/{name}");
                    match steps(source, here) {
                        Ok(steps) => {
                            self.things.insert(link.clone(), Thing::Link(steps));
                            self.links.push((link, pointer));
                        }
                        Err(cause) => {
                            self.things.insert(link, Thing::Dataset);
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
                        let cause = format!("the group is {} for `{}` already", other.class(), other.kind.name());
                        let hint = format!("give `{}` ({class}) a group of its own", module.kind.name());
                        self.wrong(module.pointer.clone(), cause, hint);
                    }
                }
            }
        }
    }

    /// What a link may mean that leads nowhere.
    fn instead(&self, wanted: &str) -> String {
        let all = if self.things.len() > SUGGEST_MAX { None } else { Some(self.things.keys().map(String::as_str)) };
        if wanted.contains(":/") {
            "a link to another file has \"file\" beside \"source\"".to_owned()
        } else if let Some(meant) = all.and_then(|all| nearest(wanted, all)) {
            format!("perhaps `{meant}` is meant")
        } else {
            "`source` is a path from the group of the link, `..` is the group above".to_owned()
        }
    }

    /// The thing itself at the end of a path, through links; where there is none, the group in which the way ends.
    fn resolve(&self, steps: &[String]) -> Result<Vec<String>, Option<String>> {
        let mut rest: Vec<String> = steps.iter().rev().cloned().collect();
        let (mut here, mut at, mut hops) = (Vec::new(), String::new(), 0);
        while let Some(step) = rest.pop() {
            let length = at.len();
            at.extend(["/", &step]);
            match self.things.get(&at) {
                Some(Thing::Link(target)) => {
                    hops += 1;
                    if hops > HOPS_MAX {
                        return Err(None);
                    }
                    rest.extend(target.iter().rev().cloned());
                    here.clear();
                    at.clear();
                }
                Some(Thing::Dataset | Thing::Outside) if !rest.is_empty() => return Err(None),
                Some(_) => here.push(step),
                None => {
                    at.truncate(length);
                    return Err(Some(at));
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

/// A group that contains itself through links.
fn circle(tree: &Tree, targets: &HashMap<String, Vec<String>>) -> Option<String> {
    // From each group that holds a link, whatever deep, to the group that the link names.
    let mut inside: HashMap<String, Vec<String>> = HashMap::new();
    for (link, target) in targets {
        let target = path(target);
        if tree.things.get(&target) != Some(&Thing::Group) {
            continue;
        }
        let mut holder = link.as_str();
        while let Some(cut) = holder.rfind('/') {
            holder = &holder[..cut];
            inside.entry(holder.to_owned()).or_default().push(target.clone());
        }
    }
    // A group reached from itself: depth first, each group entered once.
    let (mut done, mut open) = (HashSet::new(), HashSet::new());
    for start in inside.keys() {
        let mut stack = vec![(start.clone(), 0)];
        open.insert(start.clone());
        while let Some((group, next)) = stack.pop() {
            if done.contains(&group) {
                open.remove(&group);
                continue;
            }
            match inside.get(&group).and_then(|targets| targets.get(next)) {
                Some(target) => {
                    stack.push((group, next + 1));
                    if open.contains(target) {
                        return Some(target.clone());
                    }
                    if !done.contains(target) {
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
    None
}

fn rewrite(group: &mut Group, here: &mut String, targets: &mut HashMap<String, Vec<String>>) {
    let length = here.len();
    for node in &mut group.children {
        match node {
            Node::Group(inner) => {
                here.extend(["/", &inner.name]);
                rewrite(inner, here, targets);
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
