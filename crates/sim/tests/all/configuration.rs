//! Keys, defaults and the reference page say the same.

use crate::tape;
use beamport_sim as sim;
use serde_json::{Value, json};
use sim::Config;

#[test]
fn every_default_is_what_the_key_says() {
    for model in sim::models() {
        for key in model.keys().filter(|k| !k.default.is_empty()) {
            let mut config = Config::new(model.name).unwrap();
            let value = serde_json::from_str(key.default).unwrap_or_else(|_| json!(key.default));
            config.set(key.name, &value).unwrap();
            assert_eq!(config, Config::new(model.name).unwrap(), "{} {}", model.name, key.name);
        }
    }
}

#[test]
fn every_key_is_read_and_refuses_nonsense() {
    for model in sim::models() {
        for key in model.keys() {
            for value in [json!(null), json!({}), json!([[]]), json!(-1), json!(1e300), json!([-1, "a"])] {
                let mut config = Config::new(model.name).unwrap();
                let fault = config.set(key.name, &value).unwrap_err();
                assert!(fault.what.contains(key.name) && !fault.cause.contains("nothing reads"), "{fault}");
                assert_eq!(config, Config::new(model.name).unwrap());
            }
        }
    }
}

#[test]
fn slips_get_the_nearest_name() {
    let fault = Config::new("armor").unwrap_err();
    assert_eq!(fault.hint, "did you mean `amor`?");
    assert!(Config::new("zebra").unwrap_err().hint.contains("amor, amor-monitor"));
    let mut config = Config::new("amor").unwrap();
    assert_eq!(config.set("rats", &json!(1)).unwrap_err().hint, "did you mean `rate`?");
    assert_eq!(config.set("message", &json!("pulses")).unwrap_err().hint, "did you mean `pulse`?");
    // A key of another model is not silently ignored.
    assert!(config.set("metadata", &json!(1)).is_err());
}

#[test]
fn times_have_units() {
    let mut config = Config::new("amor").unwrap();
    for (text, ns) in [
        ("2 s", 2_000_000_000),
        ("1.5ms", 1_500_000),
        ("250 us", 250_000),
        ("3 min", 180_000_000_000),
        ("1 h", 3_600_000_000_000),
    ] {
        config.set("duration", &json!(text)).unwrap();
        assert_eq!(config.duration_ns, Some(ns));
    }
    for text in ["2", "s", "2 weeks", "", "1e30 h", "NaN s", "-1 s"] {
        assert!(config.set("duration", &json!(text)).is_err(), "{text}");
    }
}

#[test]
fn fields_set_directly_are_checked_too() {
    type Change = fn(&mut Config);
    let changes: [Change; 7] = [
        |c| c.rate = f64::NAN,
        |c| c.scale = 1e12,
        |c| c.angles.clear(),
        |c| c.angles = vec![0.0],
        |c| c.background = 2.0,
        |c| c.sample = "cheese".to_owned(),
        |c| c.angle_step_ns = 0,
    ];
    for change in changes {
        let mut config = Config::new("amor").unwrap();
        change(&mut config);
        assert!(sim::build(&config).is_err());
    }
    assert!(sim::build(&Config::new("histogram").unwrap()).is_err(), "without a histogram");
    let mut config = Config::new("histogram").unwrap();
    config.histogram = Some(vec![0; 100]);
    assert!(sim::build(&config).is_err());
}

#[test]
fn every_model_builds_and_has_its_truth() {
    for model in sim::models() {
        let mut config = Config::new(model.name).unwrap();
        if model.name == "histogram" {
            let histogram =
                sim::histogram::Histogram { shape: [2, 2, 1], edges_ns: vec![0.0, 10.0], counts: vec![1, 0, 2, 3] };
            config.histogram = Some(histogram.write().unwrap());
        }
        assert!(sim::build(&config).is_ok(), "{}", model.name);
        let truth = sim::truth(&config).unwrap();
        assert_eq!((&truth["model"], &truth["seed"]), (&Value::from(model.name), &Value::from(1)));
    }
}

#[test]
fn the_reference_page_names_every_model_key_default_and_origin() {
    let page = include_str!("../../../../docs/reference/sim.md");
    for model in sim::models() {
        assert!(page.contains(&format!("`{}`", model.name)), "{}", model.name);
        for key in model.keys() {
            let row = page.lines().find(|l| l.starts_with(&format!("| `{}` |", key.name)));
            let row = row.unwrap_or_else(|| panic!("no row for `{}`", key.name));
            if key.name != "rate" && !key.default.is_empty() {
                assert!(row.contains(&format!("`{}`", key.default)), "{row}: {}", key.default);
            }
            assert!(row.contains(key.about) || key.name == "rate", "{row}: {}", key.about);
        }
    }
    let origins =
        sim::amor::DEVICES.iter().map(|d| d.0).chain([sim::amor::DETECTOR, sim::amor::MONITOR, sim::FIELD_ORIGIN]);
    for origin in origins {
        assert!(page.contains(&format!("`{origin}`")), "{origin}");
    }
}

/// A model does what is promised of it before it runs.
#[test]
fn models_make_the_schemas_that_they_say() {
    for model in sim::models().iter().filter(|model| model.name != "histogram") {
        let scaled = model.keys().any(|key| key.name == "scale");
        let keys = [("scale", json!(1e-3))];
        let config = tape::config(model.name, if scaled { &keys } else { &[] });
        let tape = tape::record(&config, 2);
        assert!(!tape.messages.is_empty(), "{}", model.name);
        for (meta, _) in &tape.messages {
            assert!(
                model.schemas().contains(&meta.schema.as_text().as_str()),
                "{}: {}",
                model.name,
                meta.schema.as_text()
            );
        }
        let devices: Vec<&str> = model.devices().map(|(name, _)| name).collect();
        assert!(
            devices.is_empty() || tape.names.iter().all(|name| devices.contains(&name.as_str())),
            "{:?}",
            tape.names
        );
    }
}
