//! The documentation against the code: every command runs, every table is what the code says, every
//! link leads somewhere.

#[path = "docs/generated.rs"]
mod generated;
#[path = "docs/pages.rs"]
mod pages;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use pages::{Block, Page};

/// No page's commands take this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// All `sh` blocks of a page, in order, in one shell: as a reader would type them.
async fn run(page: &Page) {
    let blocks: Vec<&Block> = page.blocks.iter().filter(|block| block.language == "sh").collect();
    if blocks.is_empty() {
        return;
    }
    let script: String = blocks.iter().map(|block| block.text.as_str()).collect();
    // The page says 4040, where somebody else may listen.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = script.replace("localhost:4040", &format!("127.0.0.1:{port}"));
    let directory = tempfile::tempdir().unwrap();
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    // Jobs are numbered as in an interactive shell, and end with the script.
    let script = format!("set -eum\ntrap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n{script}");
    let output = tokio::process::Command::new("bash")
        .arg("-c")
        .arg(&script)
        .current_dir(directory.path())
        .env_clear()
        .env("PATH", path)
        .env("TENURE_LISTEN", format!("127.0.0.1:{port}"))
        .env("TENURE_ADMIN_LISTEN", "127.0.0.1:0")
        .env("TENURE_URL", format!("http://127.0.0.1:{port}"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, output).await.expect(&page.name).unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {}\n{out}\n{err}\n{script}", page.name, output.status);
}

#[tokio::test]
async fn every_sh_block_runs_as_it_stands() {
    let pages = Page::all();
    let mut ran = 0;
    for page in &pages {
        run(page).await;
        ran += page.blocks.iter().filter(|block| block.language == "sh").count();
    }
    assert!(ran > 10, "only {ran} blocks: are they still found?");
}

/// Commands that need a cluster or minutes are not run, but they are spelled right.
#[test]
fn every_console_block_names_what_exists() {
    let makefiles = ["Makefile", "deploy/pod.mk"].map(pages::read);
    let targets: BTreeSet<&str> = makefiles
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| Some(line.split_once(':')?.0).filter(|name| !name.contains([' ', '\t'])))
        .collect();
    for page in Page::all() {
        for block in page.blocks.iter().filter(|block| block.language == "console") {
            for command in block.text.lines().filter_map(|line| line.strip_prefix("$ ")) {
                let words: Vec<&str> = command.split_whitespace().collect();
                match words[..] {
                    ["make", target, ..] => assert!(targets.contains(target), "{command}"),
                    ["make"] => {}
                    ["tenure", ..] => {
                        let parsed = tenure::cli::parse(words.iter().map(Into::into));
                        assert!(parsed.is_ok(), "{}: {command}: {parsed:?}", page.name);
                    }
                    ["git" | "kubectl" | "helm" | "cargo" | "docker", ..] => {}
                    _ => panic!("{}: neither run nor known: {command}", page.name),
                }
            }
        }
    }
}

/// Every flag that a page mentions is one of ours, or of a tool named in the same line.
#[test]
fn every_flag_in_words_exists() {
    let known = generated::flags();
    let others =
        ["kubectl", "helm", "curl", "cargo", "kubelet", "docker", "kube-apiserver", "make"];
    for page in Page::all() {
        for line in page.words.lines().filter(|line| !others.iter().any(|tool| line.contains(tool)))
        {
            for flag in generated::mentioned(line) {
                assert!(known.contains(&flag), "{}: {flag} in {line:?}", page.name);
            }
        }
    }
}

#[test]
fn the_reference_is_what_the_code_says() {
    let path = "docs/reference.md";
    let old = pages::read(path);
    let mut new = old.clone();
    for (section, table) in [
        ("commands", generated::commands()),
        ("endpoints", generated::endpoints()),
        ("metrics", generated::metrics()),
    ] {
        new = generated::put(&new, section, &table);
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(pages::root().join(path), &new).unwrap();
    } else {
        assert!(
            old == new,
            "{path} is not what the code says: UPDATE_DOCS=1 cargo test --test docs"
        );
    }
}

#[test]
fn states_reasons_events_and_exit_codes_are_complete() {
    let reference = pages::read("docs/reference.md");
    let rows = |section: &str| -> Vec<String> {
        let (_, rest) = reference.split_once(&format!("\n## {section}\n")).expect(section);
        let body = rest.split("\n## ").next().unwrap();
        let cells = body.lines().filter_map(|line| line.strip_prefix("| `"));
        cells.map(|cell| cell.split('`').next().unwrap().to_owned()).collect()
    };
    let spec: serde_yaml_ng::Value =
        serde_yaml_ng::from_str(&pages::read("docs/openapi.yaml")).unwrap();
    let fields = &spec["components"]["schemas"]["Leader"]["properties"];
    for (section, field) in [("States", "state"), ("Reasons", "reason")] {
        let words = fields[field]["enum"].as_sequence().unwrap();
        let words: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
        assert_eq!(rows(section), words, "{section}");
    }
    let source = pages::read("src/shell/events.rs");
    let events = source.lines().filter_map(|line| {
        let (name, rest) = line.trim().split_once(" = \"")?;
        ["Normal\"", "Warning\""].iter().any(|kind| rest.starts_with(kind)).then_some(name)
    });
    assert_eq!(rows("Events"), events.collect::<Vec<_>>());
    let definition = tenure::cli::definition();
    let commands: Vec<&str> = definition.get_subcommands().map(|c| c.get_name()).collect();
    assert_eq!(rows("Exit codes"), commands);
}

#[test]
fn every_relative_link_leads_somewhere() {
    for page in Page::all_with_others() {
        for link in page.links() {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.path.clone(),
                _ => page.path.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{}: {link}", page.name);
            if !anchor.is_empty() && target.extension().is_some_and(|ext| ext == "md") {
                let text = std::fs::read_to_string(&target).unwrap();
                let anchors: Vec<String> = text.lines().filter_map(pages::anchor).collect();
                assert!(anchors.iter().any(|known| known == anchor), "{}: {link}", page.name);
            }
        }
    }
}

#[test]
fn the_readme_begins_as_a_newcomer_needs_it() {
    let text = pages::read("README.md");
    let place = |words: &str| text.find(words).unwrap_or_else(|| panic!("README lacks {words:?}"));
    let order =
        ["# tenure", "make demo", "make test", "docs/demo.svg", "## Your app", "## Guarantees"];
    assert!(order.map(place).is_sorted(), "{:?}", order.map(place));
    let (_, app) = text.split_once("## Your app").unwrap();
    let example = app.split("```").nth(1).unwrap();
    assert!(example.lines().count() <= 13, "your app is longer than 12 lines:\n{example}");
}
