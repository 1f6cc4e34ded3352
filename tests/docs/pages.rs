//! Markdown as far as these tests need it.

use std::path::{Path, PathBuf};

/// A fenced block.
#[derive(Debug)]
pub(crate) struct Block {
    /// What stands after the fence.
    pub(crate) language: String,
    /// Its lines, each with its line break.
    pub(crate) text: String,
}

/// A page, taken apart.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    pub(crate) blocks: Vec<Block>,
    /// Everything outside of blocks.
    pub(crate) words: String,
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Pages whose blocks are for a cluster, tested with real pods.
const OF_PODS: [&str; 6] =
    ["adding.md", "migrating.md", "network.md", "pod-security.md", "pods.md", "runbook.md"];

impl Page {
    /// The pages whose commands run without a cluster.
    pub(crate) fn all() -> Vec<Self> {
        let mut pages = Self::all_with_others();
        pages.retain(|page| {
            let file = page.path.file_name().unwrap().to_str().unwrap();
            !OF_PODS.contains(&file)
        });
        assert!(pages.len() > 8, "{pages:?}");
        pages
    }

    /// All pages at the root and in docs.
    pub(crate) fn all_with_others() -> Vec<Self> {
        let files = ["", "docs"].iter().flat_map(|folder| root().join(folder).read_dir().unwrap());
        let mut paths: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
        paths.sort();
        paths.into_iter().map(Self::read).collect()
    }

    fn read(path: PathBuf) -> Self {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let (mut blocks, mut words) = (Vec::new(), String::new());
        let mut open: Option<Block> = None;
        for line in text.lines() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(language)) => {
                    open = Some(Block { language: language.to_owned(), text: String::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => {
                    block.text += line;
                    block.text += "\n";
                }
                (None, None) => {
                    words += line;
                    words += "\n";
                }
            }
        }
        assert!(open.is_none(), "{name}: a block is not closed");
        Self { path, name, blocks, words }
    }

    /// Targets of links within the repository.
    pub(crate) fn links(&self) -> Vec<String> {
        let targets = self.words.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        let links = targets.map(|(target, _)| target.to_owned());
        links.filter(|target| !target.contains("://") && !target.contains(' ')).collect()
    }
}

/// The anchor of a heading, as the usual renderers make it.
pub(crate) fn anchor(line: &str) -> Option<String> {
    let heading = line.starts_with('#').then(|| line.trim_start_matches('#').trim())?;
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    Some(kept.map(|c| if c == ' ' { '-' } else { c }).collect())
}
