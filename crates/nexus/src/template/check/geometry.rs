//! Attributes that programs turn into geometry: `units` of transformations, and `depends_on`.

use super::Check;
use crate::hdf::names::{join, short};
use crate::template::{Attribute, Node, tree, units};

/// The effect of a warning about units that readers may refuse.
const AS_IT_IS: &str = "it is written as it is";

impl Check {
    /// Keeps the attribute `depends_on` of a group or a dataset.
    pub(super) fn depends_of(&mut self, at: &str, attributes: &[Attribute], is_of_group: bool) {
        if let Some(on) = text_of(attributes, "depends_on") {
            self.depends_on(&join(at, "attributes"), on, is_of_group);
        }
    }

    /// Keeps a `depends_on`, whose target is checked when the tree is complete.
    pub(super) fn depends_on(&mut self, at: &str, on: &str, is_of_group: bool) {
        let (group, on, pointer) = (self.here.clone(), on.to_owned(), at.to_owned());
        self.depends.push(tree::Depends { group, is_of_group, on, pointer });
    }

    /// Checks that a dataset that readers turn into geometry is measured in lengths or angles.
    pub(super) fn units(&mut self, at: &str, name: &str, attributes: &[Attribute]) {
        let wanted = text_of(attributes, "transformation_type").and_then(units::wanted_of_transformation);
        let wanted = wanted.or_else(|| units::wanted_of_name(name));
        if let (Some(wanted), Some(unit)) = (wanted, text_of(attributes, "units"))
            && let Some((cause, hint)) = units::refused(unit, wanted)
        {
            let cause = format!("the units of `{}`: {cause}", short(name));
            self.wrong_but(&join(at, "attributes"), cause, hint, AS_IT_IS);
        }
    }

    /// The same for a log that moves something: its group has the kind of transformation, the log its unit.
    pub(super) fn units_of_logs(&mut self, attributes: &[Attribute], children: &[Node]) {
        let wanted = text_of(attributes, "transformation_type").and_then(units::wanted_of_transformation);
        for module in
            children.iter().filter_map(|node| if let Node::Module(module) = node { Some(module) } else { None })
        {
            let Some(units) = module.plan.units() else { continue };
            let key = if self.by_unit.contains(&module.pointer) { "unit" } else { "value_units" };
            let at = join(&module.pointer, key);
            let of_group = text_of(&module.attributes, "units").or_else(|| text_of(attributes, "units"));
            if let Some(other) = of_group.filter(|other| !units.is_empty() && *other != units) {
                let cause = format!("the values are in `{}`, but the group says `{}`", short(units), short(other));
                self.wrong_but(&at, cause, "make them equal, or remove one", "both are written unchanged");
            } else if let Some(wanted) = wanted
                && !units.is_empty()
                && let Some((cause, hint)) = units::refused(units, wanted)
            {
                self.wrong_but(&at, cause, hint, AS_IT_IS);
            }
        }
    }
}

/// An attribute that is a text.
fn text_of<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a str> {
    attributes.iter().find(|a| a.name == name).and_then(|a| a.value.as_text())
}
