//! What can only be seen of the whole: names that stand twice, where links lead, groups that would contain themselves.

use super::check::short;
use super::nearest::nearest;
use super::{Group, Mistake, Module, Node};
use crate::limits::MISTAKES_MAX;
use std::collections::{HashMap, HashSet};

/// Links on the way to a link: more is a circle.
const HOPS_MAX: usize = 16;

#[derive(Clone, Debug, PartialEq)]
enum Thing {
    Group,
    Dataset,
    /// To a path that may itself pass links.
    Link(Vec<String>),
}

/// Checks the tree and makes each link's target the path of the thing itself.
pub(super) fn check(root: &mut Group, link_pointers: &[String], mistakes: &mut Vec<Mistake>) {
    let mut tree = Tree::default();
    tree.things.insert(String::new(), Thing::Group);
    tree.gather(root, &mut Vec::new(), link_pointers);
    let entry_reserved = reserved(root);
    if let Some(cause) = entry_reserved {
        tree.wrong(String::new(), cause, "beamport writes its account there; choose another name");
    }
    let mut targets = HashMap::new();
    for (link, pointer) in &tree.links.clone() {
        let Some(Thing::Link(steps)) = tree.things.get(link).cloned() else {
            continue;
        };
        match tree.resolve(&steps) {
            Some(target)
                if tree.things.get(&path(&target)) == Some(&Thing::Group) && is_inside(link, &path(&target)) =>
            {
                tree.wrong(
                    pointer.clone(),
                    format!("the group `{}` would contain itself", path(&target)),
                    "link to something below it",
                );
            }
            Some(target) => {
                targets.insert(link.clone(), target);
            }
            None => {
                let wanted = path(&steps);
                let hint = if wanted.contains(":/") {
                    "a link to another file has \"file\" beside \"source\"".to_owned()
                } else {
                    match nearest(&wanted, tree.things.keys().map(String::as_str)) {
                        Some(meant) => format!("perhaps `{meant}` is meant"),
                        None => "`source` is a path from the group of the link, `..` is the group above".to_owned(),
                    }
                };
                tree.wrong(pointer.clone(), format!("there is no `{}`", short(&wanted)), hint);
            }
        }
    }
    if let Some(group) = circle(&tree, &targets) {
        tree.wrong(
            String::new(),
            format!("links make the group `{}` contain itself", short(&group)),
            "remove one of them",
        );
    }
    rewrite(root, &mut Vec::new(), &targets);
    mistakes.append(&mut tree.mistakes);
    mistakes.truncate(MISTAKES_MAX);
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

    fn add(&mut self, here: &[String], name: &str, thing: Thing, pointer: &str) {
        let full = format!("{}/{name}", path(here));
        if self.things.insert(full.clone(), thing).is_some() {
            self.wrong(pointer.to_owned(), format!("`{}` stands twice", short(&full)), "rename one");
        }
    }

    fn gather(&mut self, group: &Group, here: &mut Vec<String>, link_pointers: &[String]) {
        let mut first: Option<&Module> = None;
        for node in &group.children {
            match node {
                Node::Group(inner) => {
                    self.add(here, &inner.name, Thing::Group, "");
                    here.push(inner.name.clone());
                    self.gather(inner, here, link_pointers);
                    here.pop();
                }
                Node::Dataset { name, .. } | Node::Outside { name, .. } => self.add(here, name, Thing::Dataset, ""),
                Node::Link { name, target } => {
                    let pointer = link_pointers.get(self.links.len()).cloned().unwrap_or_default();
                    let source = target.first().map(String::as_str).unwrap_or_default();
                    let steps = match steps(source, here) {
                        Ok(steps) => steps,
                        Err(cause) => {
                            self.wrong(format!("{pointer}/source"), cause, "`source` is a path inside this file");
                            // Not resolved again: it is told already.
                            here.clone()
                        }
                    };
                    self.links.push((format!("{}/{name}", path(here)), format!("{pointer}/source")));
                    self.add(here, name, Thing::Link(steps), &pointer);
                }
                Node::Times { start, end } => {
                    for (wanted, name) in [(start, "start_time"), (end, "end_time")] {
                        if *wanted {
                            self.add(here, name, Thing::Dataset, "");
                        }
                    }
                }
                Node::Module(module) => {
                    for name in module.kind.datasets() {
                        self.add(here, name, Thing::Dataset, &module.pointer);
                    }
                    let class = module.kind.class();
                    let other = first.get_or_insert(module);
                    if other.kind.class() != class {
                        let cause = format!("the group is {} for `{}` already", other.kind.class(), other.kind.name());
                        let hint = format!("give `{}` ({class}) a group of its own", module.kind.name());
                        self.wrong(module.pointer.clone(), cause, hint);
                    }
                }
            }
        }
    }

    /// The thing itself at the end of a path, through links.
    fn resolve(&self, steps: &[String]) -> Option<Vec<String>> {
        let mut rest: Vec<String> = steps.iter().rev().cloned().collect();
        let mut here: Vec<String> = Vec::new();
        let mut hops = 0;
        while let Some(step) = rest.pop() {
            here.push(step);
            match self.things.get(&path(&here))? {
                Thing::Link(target) => {
                    hops += 1;
                    if hops > HOPS_MAX {
                        return None;
                    }
                    rest.extend(target.iter().rev().cloned());
                    here.clear();
                }
                Thing::Dataset if !rest.is_empty() => return None,
                _ => (),
            }
        }
        Some(here)
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

/// The name that beamport needs for itself, if the template has it.
fn reserved(root: &Group) -> Option<String> {
    let taken = |group: &Group| {
        group.children.iter().any(|node| match node {
            Node::Group(inner) => inner.name == "beamport",
            Node::Dataset { name, .. } | Node::Link { name, .. } | Node::Outside { name, .. } => name == "beamport",
            _ => false,
        })
    };
    if taken(root) {
        return Some("`/beamport` is reserved".into());
    }
    root.children.iter().find_map(|node| match node {
        Node::Group(group) if taken(group) => Some(format!("`/{}/beamport` is reserved", short(&group.name))),
        _ => None,
    })
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

fn rewrite(group: &mut Group, here: &mut Vec<String>, targets: &HashMap<String, Vec<String>>) {
    for node in &mut group.children {
        match node {
            Node::Group(inner) => {
                here.push(inner.name.clone());
                rewrite(inner, here, targets);
                here.pop();
            }
            Node::Link { name, target } => {
                if let Some(found) = targets.get(&format!("{}/{name}", path(here))) {
                    target.clone_from(found);
                }
            }
            _ => (),
        }
    }
}
