//! Tables of the reference, made from the code.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use tenure::core::{Options, Rules};
use tenure::metrics::Metrics;
use tenure::seat::Seat;
use tenure::shell::clock::SystemClock;
use tenure::timing::Timing;

/// Replaces what stands between the marks of this section.
pub(crate) fn put(text: &str, section: &str, table: &str) -> String {
    let begin = format!("<!-- generated: {section} -->\n");
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("no {begin}"));
    let (_, after) = rest.split_once("<!-- end -->").expect("no end mark");
    format!("{before}{begin}\n{table}\n<!-- end -->{after}")
}

/// One section per command, a row per flag.
pub(crate) fn commands() -> String {
    let mut out = String::new();
    for command in tenure::cli::definition().get_subcommands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(out, "### tenure {}\n\n{about}.\n", command.get_name()).unwrap();
        writeln!(out, "| flag | default | meaning |\n|---|---|---|").unwrap();
        for arg in command.get_arguments() {
            let Some(long) = arg.get_long().filter(|long| !["help", "version"].contains(long))
            else {
                continue;
            };
            let value = match arg.get_value_names() {
                Some(names) if arg.is_require_equals_set() => format!("[={}]", names[0]),
                Some(names) if arg.get_action().takes_values() => format!(" {}", names[0]),
                _ => String::new(),
            };
            let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
            let mut default = defaults.collect::<Vec<_>>().join(",");
            if default.is_empty() && arg.is_required_set() {
                default = "required".into();
            }
            if !arg.get_action().takes_values() {
                default = "off".into();
            }
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let help = help.replace('\n', " ").replace('|', "\\|").replace('<', "\\<");
            writeln!(out, "| `--{long}{value}` | {default} | {help} |").unwrap();
        }
        out.push('\n');
    }
    out.trim_end().to_owned() + "\n"
}

/// All long flags of all commands, with their dashes.
pub(crate) fn flags() -> BTreeSet<String> {
    let definition = tenure::cli::definition();
    let arguments = definition.get_subcommands().flat_map(|command| command.get_arguments());
    let mut flags: BTreeSet<String> =
        arguments.filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
    flags.extend(["--help".into(), "--version".into()]);
    flags
}

/// The flags that a line mentions.
pub(crate) fn mentioned(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (start, _) in line.match_indices("--") {
        let begins = line[..start].chars().next_back().is_none_or(|c| " `(\"[=".contains(c));
        let rest = &line[start + 2..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(rest.len());
        let name = rest[..end].trim_end_matches('-');
        if begins && name.len() > 1 {
            found.push(format!("--{name}"));
        }
    }
    found
}

/// From the contract: path, method, what it does.
pub(crate) fn endpoints() -> String {
    let spec = std::fs::read_to_string(super::pages::root().join("docs/openapi.yaml")).unwrap();
    let spec: serde_yaml_ng::Value = serde_yaml_ng::from_str(&spec).unwrap();
    let mut out = "| endpoint | on | answers |\n|---|---|---|\n".to_owned();
    for (path, methods) in spec["paths"].as_mapping().unwrap() {
        for method in ["get", "post"] {
            let Some(operation) = methods.get(method) else { continue };
            let tag = operation["tags"][0].as_str().unwrap();
            let summary = operation["summary"].as_str().unwrap();
            let (path, method) = (path.as_str().unwrap(), method.to_uppercase());
            writeln!(out, "| `{method} {path}` | {tag} | {summary} |").unwrap();
        }
    }
    out
}

/// From a registry as it is at the start: name, labels of its own, help.
pub(crate) fn metrics() -> String {
    let timing = Timing::default();
    let metrics = Metrics::new("billing", "shop", timing.renew_deadline(), Arc::new(SystemClock));
    let options = Options {
        identity: "web-0_uid".into(),
        incarnation: "incarnation".into(),
        takes_over: false,
        timing,
        missing_lease: tenure::core::MissingLease::Create,
        drain_timeout: tenure::core::DrainTimeout::Auto,
        on_app_exit: tenure::core::OnAppExit::Release,
        unsafe_release_on_sigterm: false,
        max_valid: None,
        rules: Rules::default(),
    };
    let text = metrics.render(&Seat::new(options, Arc::new(SystemClock)));
    let mut out = "| metric | type | own labels | meaning |\n|---|---|---|---|\n".to_owned();
    let mut help = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            let labels = own_labels(&text, name).join(", ");
            writeln!(out, "| `{name}` | {kind} | {labels} | {help} |").unwrap();
        }
    }
    out
}

fn own_labels(text: &str, name: &str) -> Vec<String> {
    let mut labels = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with(name)) {
        let inner = line.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        let pairs = inner.map_or("", |(inner, _)| inner).split(',');
        labels.extend(pairs.filter_map(|pair| Some(pair.split_once('=')?.0.to_owned())));
    }
    labels.retain(|label| !["lease", "lease_namespace", "le"].contains(&&**label));
    labels.into_iter().collect()
}
