//! The account of a run as datasets: the JSON as it is, and its lists as tables.
//!
//! A list of objects becomes a group with a dataset for each key and a row for each object: numbers where all values
//! are numbers, else text; an object of counts (`{"full": 3}`) becomes their sum. Of the other values, `closed`,
//! `content`, `lost` and `reason` are datasets; the rest is in the JSON only. The account of another host of the
//! instrument has a group of its own, `hosts/NAME`.

use crate::hdf::value::Data;
use crate::limits::TABLE_ROWS_MAX;
use serde_json::Value;
use wire::DType;

/// A group and its datasets.
pub(crate) type Table = (String, Vec<(String, Data)>);

/// Returns the groups and datasets to write below `path`.
pub(crate) fn tables(path: &str, account: &str) -> Vec<Table> {
    let whole = Data::text(account.replace('\0', ""));
    let mut out = vec![(path.to_owned(), vec![("account".to_owned(), whole)])];
    let Ok(Value::Object(account)) = serde_json::from_str(account) else { return out };
    let hosts = account.get("hosts").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if !hosts.is_empty() {
        out.push((format!("{path}/hosts"), Vec::new()));
    }
    for host in hosts {
        if let Some(name) = host["host"].as_str().filter(|name| is_name(name)) {
            let mut of_host = tables(&format!("{path}/hosts/{name}"), &host["account"].to_string());
            of_host[0].1.push(("state".to_owned(), Data::text(host["state"].as_str().unwrap_or_default().to_owned())));
            out.extend(of_host);
        }
    }
    for (name, value) in account.iter().filter(|(name, _)| *name != "hosts") {
        if let (Some(rows), true) = (value.as_array(), is_name(name))
            && (1..=TABLE_ROWS_MAX).contains(&rows.len())
            && let Some(columns) = table(rows)
        {
            out.push((format!("{path}/{name}"), columns));
        }
        if let (Some(closed), "closed") = (value.as_bool(), name.as_str()) {
            out[0].1.push((name.clone(), Data::number(DType::Int8, &[u8::from(closed)])));
        }
        if let (Some(text), "content" | "reason") = (value.as_str(), name.as_str()) {
            out[0].1.push((name.clone(), Data::text(text.replace('\0', ""))));
        }
        if let (Some(lost), "lost") = (value.as_u64(), name.as_str()) {
            out[0].1.push((name.clone(), Data::number(DType::UInt64, &lost.to_le_bytes())));
        }
    }
    out
}

/// Whether a group may have this name.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn table(rows: &[Value]) -> Option<Vec<(String, Data)>> {
    let first = rows.first()?.as_object()?;
    let names = first.keys().filter(|k| !k.is_empty() && !k.contains(['/', '\0']) && *k != "." && *k != "..");
    names
        .map(|name| {
            let cells: Vec<Value> = rows.iter().map(|row| plain(&row[name])).collect();
            let numbers = |dtype, bytes: Vec<u8>| Some((name.clone(), Data::numbers(dtype, bytes)));
            if let Some(all) = cells.iter().map(Value::as_i64).collect::<Option<Vec<_>>>() {
                return numbers(DType::Int64, all.iter().flat_map(|n| n.to_le_bytes()).collect());
            }
            if let Some(all) = cells.iter().map(Value::as_u64).collect::<Option<Vec<_>>>() {
                return numbers(DType::UInt64, all.iter().flat_map(|n| n.to_le_bytes()).collect());
            }
            if let Some(all) = cells.iter().map(Value::as_f64).collect::<Option<Vec<_>>>() {
                return numbers(DType::Float64, all.iter().flat_map(|n| n.to_le_bytes()).collect());
            }
            let texts = cells.iter().map(|cell| match cell {
                Value::String(text) => text.replace('\0', ""),
                Value::Null => String::new(),
                other => other.to_string(),
            });
            Some((name.clone(), Data::texts(texts.collect())))
        })
        .collect()
}

/// Truth as 0 or 1, an object of counts as their sum.
fn plain(value: &Value) -> Value {
    match value {
        Value::Bool(truth) => Value::from(u8::from(*truth)),
        Value::Object(counts) => match counts.values().map(Value::as_u64).sum::<Option<u64>>() {
            Some(sum) => Value::from(sum),
            None => value.clone(),
        },
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::tables;

    #[test]
    fn the_account_of_another_host_has_a_group_of_its_own() {
        let account = r#"{"entries": [{"stream": "x", "sent": 3}], "lost": 1, "hosts": [
            {"host": "b-1", "state": "done", "account": {"entries": [{"stream": "y", "sent": 4}], "lost": 1}},
            {"host": "c", "state": "absent", "account": null}]}"#;
        let made: Vec<(String, Vec<String>)> = tables("entry/beamport", account)
            .into_iter()
            .map(|(path, columns)| (path, columns.into_iter().map(|(name, _)| name).collect()))
            .collect();
        let of = |path: &str| made.iter().find(|(known, _)| known == path).map(|(_, columns)| columns.join(" "));
        assert_eq!(of("entry/beamport").as_deref(), Some("account lost"));
        assert_eq!(of("entry/beamport/entries").as_deref(), Some("sent stream"));
        assert_eq!(of("entry/beamport/hosts").as_deref(), Some(""));
        assert_eq!(of("entry/beamport/hosts/b-1").as_deref(), Some("account lost state"));
        assert_eq!(of("entry/beamport/hosts/b-1/entries").as_deref(), Some("sent stream"));
        assert_eq!(of("entry/beamport/hosts/c").as_deref(), Some("account state"));
        let parent = |path: &str| made.iter().position(|(known, _)| known == path);
        assert!(parent("entry/beamport/hosts") < parent("entry/beamport/hosts/b-1"));
    }
}
