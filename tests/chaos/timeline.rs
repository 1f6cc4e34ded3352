//! One self-contained page a person can read: who led when, by its own word; who held the Lease; what
//! the harness did; and each fact around what was broken, or around the longest time without a leader.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use crate::checker::{Reign, Verdict};
use crate::facts::{Fact, What};

const WIDTH: f64 = 1400.0;
const ROW: f64 = 26.0;
const LEFT: f64 = 210.0;
/// Around what is shown, nanoseconds.
const AROUND: u64 = 15_000_000_000;

/// Writes the stretch around `what`, or all of it.
pub fn write(
    path: &Path,
    title: &str,
    facts: &[Fact],
    verdict: &Verdict,
    what: Option<Range<u64>>,
) {
    let bounds = facts.first().map_or(0, |f| f.at)..facts.last().map_or(1, |f| f.at);
    let around = what.map(|what| what.start.saturating_sub(AROUND)..what.end + AROUND);
    let Range { start: from, end: until } = around.unwrap_or(bounds);
    let shown: Vec<&Fact> = facts.iter().filter(|f| (from..=until).contains(&f.at)).collect();
    let reigns: Vec<&Reign> =
        verdict.reigns.iter().filter(|r| r.from <= until && r.until >= from).collect();
    let page = page(title, &shown, &reigns, verdict, from, until.max(from + 1));
    std::fs::write(path, page).expect("write the timeline");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

fn page(
    title: &str,
    facts: &[&Fact],
    reigns: &[&Reign],
    verdict: &Verdict,
    from: u64,
    until: u64,
) -> String {
    let mut rows: Vec<&str> = reigns.iter().map(|reign| &*reign.who).collect();
    rows.sort_unstable();
    rows.dedup();
    let x = |at: u64| {
        let at = at.clamp(from, until) - from;
        LEFT + (WIDTH - LEFT) * at as f64 / (until - from) as f64
    };
    let height = ROW * (rows.len() as f64 + 3.0);
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' \
         font-family='monospace' font-size='12'>"
    );
    for (place, who) in rows.iter().enumerate() {
        let y = ROW * (place as f64 + 1.0);
        let _ = write!(svg, "<text x='4' y='{:.0}'>{}</text>", y + 16.0, escape(who));
        for reign in reigns.iter().filter(|reign| reign.who == **who) {
            let (a, b) = (x(reign.from), x(reign.until));
            let color = if reign.epoch.is_some() { "#2a9d5c" } else { "#d98a29" };
            let epoch = reign.epoch.map_or("client-go".into(), |epoch| format!("epoch {epoch}"));
            let _ = write!(
                svg,
                "<rect x='{a:.1}' y='{y:.1}' width='{:.1}' height='{:.0}' fill='{color}' \
                 fill-opacity='0.75'><title>{epoch}</title></rect>",
                (b - a).max(1.0),
                ROW - 6.0
            );
        }
    }
    lease_row(&mut svg, facts, &x, ROW * (rows.len() as f64 + 1.0), until);
    marks(&mut svg, facts, verdict, &x, height, from..=until);
    svg.push_str("</svg>");
    format!(
        "<!doctype html><meta charset='utf-8'><title>{0}</title><h1>{0}</h1>\
         <p>Green: a tenure says it leads; orange: client-go does; grey: who is named by the Lease. \
         Blue: a fault; red: what was broken. {1} s are shown.</p><ul>{2}</ul>{svg}\
         <table style='font:12px monospace'>{3}</table>",
        escape(title),
        (until - from) / 1_000_000_000,
        violations(verdict, from),
        table(facts, from),
    )
}

fn lease_row(svg: &mut String, facts: &[&Fact], x: &impl Fn(u64) -> f64, y: f64, until: u64) {
    let _ = write!(svg, "<text x='4' y='{:.0}'>named by the Lease</text>", y + 16.0);
    let versions = facts.iter().filter_map(|fact| match &fact.what {
        What::Version(version) => Some((fact.at, version.holder.clone())),
        What::Deleted { .. } => Some((fact.at, "(deleted)".into())),
        _ => None,
    });
    let mut spans: Vec<(u64, String)> = versions.collect();
    spans.dedup_by(|later, earlier| later.1 == earlier.1);
    for (place, (at, holder)) in spans.iter().enumerate() {
        let end = spans.get(place + 1).map_or(until, |next| next.0);
        let fill = if holder.is_empty() { "#eeeeee" } else { "#b9c0c8" };
        let _ = write!(
            svg,
            "<rect x='{:.1}' y='{y:.0}' width='{:.1}' height='{:.0}' fill='{fill}' stroke='white'>\
             <title>{}</title></rect>",
            x(*at),
            (x(end) - x(*at)).max(1.0),
            ROW - 6.0,
            escape(holder)
        );
    }
}

fn marks(
    svg: &mut String,
    facts: &[&Fact],
    verdict: &Verdict,
    x: &impl Fn(u64) -> f64,
    height: f64,
    shown: std::ops::RangeInclusive<u64>,
) {
    let faults = facts.iter().filter_map(|fact| match &fact.what {
        What::Fault(text) => Some((fact.at, "#3366cc", text)),
        _ => None,
    });
    let broken = verdict.violations.iter().map(|(at, text)| (*at, "#cc2222", text));
    for (at, color, text) in faults.chain(broken).filter(|(at, ..)| shown.contains(at)) {
        let _ = write!(
            svg,
            "<line x1='{0:.1}' x2='{0:.1}' y1='0' y2='{height}' stroke='{color}'>\
             <title>{1}</title></line><text x='{2:.1}' y='{3:.0}' fill='{color}' \
             font-size='9'>{1}</text>",
            x(at),
            escape(text),
            x(at) + 2.0,
            height - if color == "#cc2222" { 4.0 } else { 18.0 }
        );
    }
}

fn violations(verdict: &Verdict, from: u64) -> String {
    verdict.violations.iter().fold(String::new(), |mut text, (at, what)| {
        let at = (*at as f64 - from as f64) / 1e9;
        let _ = write!(text, "<li style='color:#c22'>{at:.6} s: {}</li>", escape(what));
        text
    })
}

fn table(facts: &[&Fact], from: u64) -> String {
    let dull = |what: &What| matches!(what, What::Stand { .. } | What::Sent { .. });
    let told = facts.iter().filter(|fact| !dull(&fact.what));
    told.fold(String::new(), |mut text, fact| {
        let at = fact.at.saturating_sub(from) as f64 / 1e9;
        let what = escape(&format!("{:?}", fact.what));
        let _ = write!(text, "<tr><td>{at:.6}<td>{}<td>{what}", escape(&fact.who));
        text
    })
}
