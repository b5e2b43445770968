//! Compares what a module of a template reads with what the sources of its streams send.

use flow::checked::{ConfigText, StreamModule};
use flow::edge::Sends;
use settings::{nearest, shortened};

/// An item that a module of a template reads and no source makes.
pub(super) struct Missing {
    /// The key of its `config` that asks for it, a JSON pointer without the first `/`.
    pub(super) key: String,
    pub(super) what: String,
    pub(super) cause: String,
    pub(super) hint: String,
}

/// Lists what a module reads and the sources of its streams do not send. `sources`: what they send, as far as that is
/// known.
pub(super) fn never_comes(reads: &StreamModule, sources: &[&Sends]) -> Vec<Missing> {
    // Schemas that mean the same as the one that a model makes.
    const ALIKE: [(&str, &str); 4] = [("ev42", "ev44"), ("f142", "f144"), ("senv", "se00"), ("hs00", "hs01")];
    let makers: Vec<&str> = sources.iter().map(|source| source.maker.as_str()).collect();
    let makers = makers.join(", ");
    let schema: Option<[u8; 4]> = reads.module.as_bytes().try_into().ok();
    // A module of the user decides itself what it reads.
    if sources.is_empty()
        || sources.len() != reads.streams.len()
        || !schema.is_some_and(|schema| wire::KNOWN.contains(&schema))
    {
        return Vec::new();
    }
    let word = ALIKE.iter().find(|(old, _)| *old == reads.module).map_or(reads.module.as_str(), |(_, new)| new);
    let makes: Vec<&str> = sources.iter().flat_map(|sends| &sends.schemas).map(String::as_str).collect();
    let streams = shortened(&reads.streams.join(", "));
    let said = || format!("{makers} makes {}", makes.join(", "));
    if !makes.contains(&word) {
        let what = format!("stream `{streams}` has nothing for the module `{}`", reads.module);
        let hint = "name another stream or another module, or remove it".into();
        return vec![Missing { key: reads.key.clone(), what, cause: said(), hint }];
    }
    let mut out = Vec::new();
    let sent: Vec<&str> = sources.iter().flat_map(|sends| &sends.variables).map(String::as_str).collect();
    for ConfigText { key, text: name } in &reads.variables {
        if word != "da00" || sent.contains(&name.as_str()) {
            continue;
        }
        let what = format!("messages of stream `{streams}` have no variable `{}`", shortened(name));
        let hint = match nearest(name, sent.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "remove it".to_owned(),
        };
        let cause = format!("{makers} sends {}", sent.join(", "));
        out.push(Missing { key: key.clone(), what, cause, hint });
    }
    if let Some(source) = reads.source.as_deref() {
        let origins: Vec<&str> = sources.iter().flat_map(|sends| &sends.origins).map(String::as_str).collect();
        if !origins.contains(&source) {
            let what = format!("stream `{streams}` has no origin `{}`", shortened(source));
            // Small letters: how words are compared.
            let small: Vec<String> = origins.iter().map(|name| name.to_lowercase()).collect();
            let near = nearest(source, small.iter().map(String::as_str));
            let meant = small.iter().position(|name| Some(name.as_str()) == near).map(|at| &origins[at]);
            let hint = match (meant, origins.as_slice()) {
                (Some(near), _) => format!("did you mean `{near}`?"),
                (None, [name]) => format!("write `{name}`"),
                _ => format!("origins are {}", shortened(&origins.join(", "))),
            };
            out.push(Missing { key: "source".into(), what, cause: said(), hint });
        }
        let mut units = sources.iter().flat_map(|sends| &sends.units);
        if let (Some((_, unit)), Some(ConfigText { key, text: other })) =
            (units.find(|(name, _)| name == source), &reads.units)
            && other != unit
        {
            let what = format!("the values of `{source}` are not in `{}`", shortened(other));
            let hint = format!("write \"{key}\": \"{unit}\"");
            out.push(Missing { key: key.clone(), what, cause: format!("its source has `{unit}`"), hint });
        }
    }
    out
}
