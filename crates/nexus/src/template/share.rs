//! One run by several writers: what of a template is whose.
//!
//! A group with a module belongs, with all that is in it, to the writer that has the module's streams. All else belongs to
//! the first writer, whose file is the run's: there a link stands in the place of each group that another has. The file of
//! another holds its groups at the same paths, and of what is above them the names and attributes.
//!
//! Constraints: groups of the first two levels (the file, its entries) stay where they are. Links within a file that
//! lead out of it become links to the file that has what they stand for; they are relative, so the files move together.

use super::tree::soft_steps;
use super::{Group, Node, Template};
use flow::job::Elsewhere;

/// A group with a module, and the other file that has it; none: this one.
type Home = (Vec<String>, Option<String>);

/// The file of a group with a module.
fn file_of(elsewhere: &Elsewhere, group: &Group) -> Option<Option<String>> {
    let module = group.children.iter().find_map(|node| if let Node::Module(m) = node { Some(m) } else { None })?;
    let is_of = |(stream, _): &&(String, String)| module.streams.contains(stream);
    Some(elsewhere.streams.iter().find(is_of).map(|(_, file)| file.clone()))
}

fn homes(elsewhere: &Elsewhere, group: &Group, path: &mut Vec<String>, into: &mut Vec<Home>) {
    for node in &group.children {
        let Node::Group(inner) = node else { continue };
        path.push(inner.name.clone());
        match file_of(elsewhere, inner).filter(|_| path.len() > 1) {
            Some(file) => {
                if let Some(metadata) = inner.metadata() {
                    let mut beside = path.clone();
                    beside.pop();
                    beside.push(metadata);
                    into.push((beside, file.clone()));
                }
                into.push((path.clone(), file));
            }
            None => homes(elsewhere, inner, path, into),
        }
        path.pop();
    }
}

impl Template {
    /// Takes out what other writers have.
    pub(crate) fn share(&mut self, elsewhere: &Elsewhere) {
        if elsewhere.is_empty() {
            return;
        }
        let mut all = Vec::new();
        homes(elsewhere, &self.root, &mut Vec::new(), &mut all);
        let sharing = Sharing { homes: all, run_file: elsewhere.run_file.clone() };
        match sharing.run_file {
            None => sharing.lead(&mut self.root, &mut Vec::new()),
            Some(_) => sharing.keep(&mut self.root, &mut Vec::new()),
        }
        // A file is resumed only with the shares that it began with.
        self.digest += &format!(" {}", elsewhere.run_file.as_deref().unwrap_or("shared"));
        elsewhere.streams.iter().for_each(|(stream, file)| self.digest += &format!(" {stream}:{file}"));
    }
}

struct Sharing {
    homes: Vec<Home>,
    run_file: Option<String>,
}

impl Sharing {
    fn home(&self, path: &[String]) -> Option<&Home> {
        self.homes.iter().find(|home| home.0 == path)
    }

    /// The run's file: links in the places of what others have.
    fn lead(&self, group: &mut Group, path: &mut Vec<String>) {
        let mut beside = Vec::new();
        for node in &mut group.children {
            let Node::Group(inner) = node else {
                self.lead_out(node, path);
                continue;
            };
            let metadata = inner.metadata();
            path.push(inner.name.clone());
            match self.home(path) {
                Some((_, Some(file))) => {
                    if let Some(name) = metadata {
                        let target = joined(&[&path[..path.len() - 1], std::slice::from_ref(&name)].concat());
                        beside.push(Node::Outside { name, file: file.clone(), target });
                    }
                    *node = Node::Outside { name: inner.name.clone(), file: file.clone(), target: joined(path) };
                }
                _ => self.lead(inner, path),
            }
            path.pop();
        }
        group.children.append(&mut beside);
    }

    /// The file of another writer: its groups, and the way there.
    fn keep(&self, group: &mut Group, path: &mut Vec<String>) {
        group.children.retain_mut(|node| {
            let Node::Group(inner) = node else { return false };
            path.push(inner.name.clone());
            let is_on_the_way = match self.home(path) {
                Some((_, None)) => {
                    self.lead(inner, path);
                    true
                }
                Some(_) => false,
                None => self.homes.iter().any(|home| home.1.is_none() && home.0.starts_with(path)),
            };
            if is_on_the_way && self.home(path).is_none() {
                self.keep(inner, path);
            }
            path.pop();
            is_on_the_way
        });
    }

    /// A link to what another file has leads there.
    fn lead_out(&self, node: &mut Node, here: &[String]) {
        let (name, target) = match node {
            Node::Link { name, target, .. } => (name, &target.clone()),
            // In the run's file the path leads through what stands there.
            Node::Soft { name, target } if self.run_file.is_some() => (name, &soft_steps(target, here)),
            _ => return,
        };
        let home = self.homes.iter().find(|home| target.starts_with(&home.0));
        let file = match home {
            Some((_, file)) => file.as_ref(),
            None => self.run_file.as_ref(),
        };
        if let Some(file) = file {
            *node = Node::Outside { name: name.clone(), file: file.clone(), target: joined(target) };
        }
    }
}

fn joined(path: &[String]) -> String {
    path.iter().map(|name| format!("/{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"children": [{"type": "group", "name": "entry", "attributes": [{"name": "NX_class", "values": "NXentry"}], "children": [
        {"module": "dataset", "config": {"name": "title", "values": "t", "type": "string"}},
        {"type": "group", "name": "instrument", "attributes": [{"name": "NX_class", "values": "NXinstrument"}], "children": [
            {"type": "group", "name": "bank1", "children": [{"module": "ev44", "config": {"stream": "one", "source": "a"}}]},
            {"type": "group", "name": "bank2", "children": [
                {"module": "ev44", "config": {"stream": "two", "source": "b"}},
                {"module": "link", "config": {"name": "other", "source": "/entry/instrument/bank1"}},
                {"module": "link", "config": {"name": "same", "source": "/entry/instrument/bank2/event_id"}},
                {"module": "link", "config": {"name": "name", "source": "/entry/title"}}]}]},
        {"module": "link", "config": {"name": "events", "source": "/entry/instrument/bank2"}},
        {"module": "link", "config": {"name": "here", "source": "/entry/instrument/bank1"}}]}]}"#;

    fn shared(elsewhere: &Elsewhere) -> Template {
        let mut template = Template::parse(TEXT.as_bytes()).unwrap();
        template.share(elsewhere);
        template
    }

    fn group<'a>(template: &'a Template, path: &[&str]) -> &'a Group {
        path.iter().fold(&template.root, |group, name| {
            let is_it = |node: &&'a Node| matches!(node, Node::Group(inner) if inner.name == *name);
            let Some(Node::Group(inner)) = group.children.iter().find(is_it) else { panic!("{name} is not there") };
            inner
        })
    }

    fn outside(group: &Group) -> Vec<(&str, &str, &str)> {
        let link = |node: &'_ Node| match node {
            Node::Outside { name, file, target } => Some((name.clone(), file.clone(), target.clone())),
            _ => None,
        };
        let found: Vec<_> = group.children.iter().filter_map(link).collect();
        found.into_iter().map(|(n, f, t)| (&*n.leak(), &*f.leak(), &*t.leak())).collect()
    }

    #[test]
    fn the_files_of_a_run_have_each_group_once_and_lead_to_the_others() {
        let whole = shared(&Elsewhere::default());
        let first = shared(&Elsewhere { streams: vec![("two".into(), "r.2.nxs".into())], run_file: None });
        assert_eq!(first.streams(), ["one"]);
        let bank2 = "/entry/instrument/bank2";
        assert_eq!(outside(group(&first, &["entry", "instrument"])), [("bank2", "r.2.nxs", bank2)]);
        assert_eq!(outside(group(&first, &["entry"])), [("events", "r.2.nxs", bank2)]);
        assert_eq!(group(&first, &["entry"]).children.len(), group(&whole, &["entry"]).children.len());

        let streams = vec![("one".into(), "r.nxs".into())];
        let second = shared(&Elsewhere { streams, run_file: Some("r.nxs".into()) });
        assert_eq!(second.streams(), ["two"]);
        let entry = group(&second, &["entry"]);
        assert_eq!((entry.children.len(), entry.attributes.len()), (1, 1));
        assert_eq!(group(&second, &["entry", "instrument"]).children.len(), 1);
        let bank = group(&second, &["entry", "instrument", "bank2"]);
        let links = [("other", "r.nxs", "/entry/instrument/bank1"), ("name", "r.nxs", "/entry/title")];
        assert_eq!(outside(bank), links);
        assert!(bank.children.iter().any(|node| matches!(node, Node::Link { name, .. } if name == "same")));
        let digests = [&whole.digest, &first.digest, &second.digest];
        assert!(digests[0] != digests[1] && digests[1] != digests[2] && digests[0] != digests[2]);
    }

    #[test]
    fn attributes_of_frames_of_another_file_were_in_none() {
        let text = r#"{"children": [{"type": "group", "name": "entry", "children": [
            {"type": "group", "name": "cam", "children": [{"module": "ad00", "config": {"stream": "two"}}]},
            {"module": "link", "config": {"name": "same", "source": "cam_metadata"}}]}]}"#;
        let mut first = Template::parse(text.as_bytes()).unwrap();
        let streams = vec![("two".to_owned(), "r.2.nxs".to_owned())];
        first.share(&Elsewhere { streams, run_file: None });
        let wanted = [("cam", "/entry/cam"), ("same", "/entry/cam_metadata"), ("cam_metadata", "/entry/cam_metadata")];
        assert_eq!(outside(group(&first, &["entry"])), wanted.map(|(name, target)| (name, "r.2.nxs", target)));
        // Nothing else may stand there.
        let taken = text.replace("\"same\"", "\"cam_metadata\"");
        let mistakes = Template::parse(taken.as_bytes()).unwrap_err();
        assert!(mistakes[0].cause.contains("`cam_metadata` appears twice"), "{mistakes:?}");
    }
}
