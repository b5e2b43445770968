//! Every view of the list.

use super::VIEWS;
use crate::look::Looker;
use crate::look::tests::{all_views, look};
use serde_json::json;

#[test]
fn every_view_has_its_part_of_the_page_and_its_row_and_its_options_are_read() {
    let page = include_str!("../../../../../docs/reference/web.md");
    let list = include_str!("../../../page/views/index.js");
    let folder = all_views("kinds");
    let mut looker = Looker::new(&folder.0, 16);
    let mut drawn = 0;
    for kind in VIEWS {
        assert!(page.contains(&format!("\n| `{}` | ", kind.word)), "web.md has no row of `{}`", kind.word);
        let is_drawn = list.contains(&format!("import {} from './{}.js';", kind.word, kind.word));
        assert_eq!(is_drawn, kind.suits.is_some(), "views/index.js and `{}`", kind.word);
        drawn += usize::from(is_drawn);
        for option in kind.options {
            assert!(page.contains(&format!("\n| `{option}` | ")), "web.md has no row of `{option}`");
            // A value that no key has is refused by the view that reads it.
            let mut panel = json!({"view": kind.word});
            panel[option] = json!({"no": "value"});
            let refused = ["detector", "devices", "monitor", "camera", "built"].into_iter().any(|stream| {
                panel["stream"] = stream.into();
                let seen = look(&mut looker, json!({"panels": [panel]}));
                seen.panels[0]["fault"]["cause"].as_str().is_some_and(|cause| cause.starts_with(&format!("`{option}`")))
            });
            assert!(refused, "`{}` does not read its option `{option}`", kind.word);
        }
    }
    assert_eq!(list.matches("import ").count(), drawn, "views/index.js has a view that the server does not have");
}
