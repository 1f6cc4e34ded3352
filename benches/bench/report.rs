//! What was measured: a table, a JSON document and a picture.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// One quantity of one contestant.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) measure: &'static str,
    pub(crate) who: &'static str,
    pub(crate) unit: &'static str,
    /// Sorted.
    values: Vec<f64>,
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
}

pub(crate) const TENURE: &str = "tenure";
pub(crate) const CLIENT_GO: &str = "client-go";
pub(crate) const MS: &str = "ms";

impl Report {
    pub(crate) fn add(
        &mut self,
        measure: &'static str,
        who: &'static str,
        unit: &'static str,
        mut values: Vec<f64>,
    ) {
        values.sort_by(f64::total_cmp);
        let row = Row { measure, who, unit, values };
        eprintln!("{}", line(&row, None));
        self.rows.push(row);
    }

    pub(crate) fn one(
        &mut self,
        measure: &'static str,
        who: &'static str,
        unit: &'static str,
        value: f64,
    ) {
        self.add(measure, who, unit, vec![value]);
    }

    fn other(&self, row: &Row) -> Option<&Row> {
        self.rows.iter().find(|other| other.measure == row.measure && other.who == CLIENT_GO)
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from(
            "| measure | of | unit | n | min | p50 | p90 | p99 | max | client-go / tenure |\n\
             |---|---|---|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        for row in &self.rows {
            let other = self.other(row).filter(|_| row.who == TENURE);
            let ratio = other.map(|other| other.quantile(0.5) / row.quantile(0.5));
            text.push_str(&line(row, ratio.filter(|ratio| ratio.is_finite())));
            text.push('\n');
        }
        text
    }

    pub(crate) fn json(&self, about: &[(&str, String)]) -> Value {
        let about: serde_json::Map<String, Value> =
            about.iter().map(|(key, text)| ((*key).to_owned(), json!(text))).collect();
        let rows = self.rows.iter().map(|row| {
            json!({
                "measure": row.measure, "of": row.who, "unit": row.unit, "n": row.values.len(),
                "min": row.quantile(0.0), "p50": row.quantile(0.5), "p90": row.quantile(0.9),
                "p99": row.quantile(0.99), "max": row.quantile(1.0), "values": row.values,
            })
        });
        json!({"about": about, "rows": rows.collect::<Vec<_>>()})
    }

    /// All spans of time that both were measured in, on one logarithmic axis from 0.1 ms to 100 s.
    pub(crate) fn svg(&self) -> String {
        let x = |ms: f64| 300.0 + (ms.max(0.1).log10() + 1.0) * 100.0;
        let shown: Vec<&Row> = self.rows.iter().filter(|row| row.unit == MS).collect();
        let height = 50 + 24 * shown.len();
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 940 {height}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"940\" height=\"{height}\" fill=\"white\"/>\n"
        );
        for (decade, label) in
            ["0.1 ms", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"].into_iter().enumerate()
        {
            let at = 300 + 100 * decade;
            let _ = writeln!(
                svg,
                "<path d=\"M{at} 24V{height}\" stroke=\"#ddd\"/>\
                 <text x=\"{at}\" y=\"16\" text-anchor=\"middle\">{label}</text>"
            );
        }
        for (index, row) in shown.into_iter().enumerate() {
            let y = 40 + 24 * index;
            let [min, mid, max] = [0.0, 0.5, 1.0].map(|q| x(row.quantile(q)));
            let color = if row.who == TENURE { "#0a6" } else { "#46c" };
            let _ = writeln!(
                svg,
                "<text x=\"290\" y=\"{}\" text-anchor=\"end\">{}, {}</text>\
                 <path d=\"M{min:.0} {y}H{max:.0}\" stroke=\"{color}\" stroke-width=\"6\" \
                 stroke-linecap=\"round\" opacity=\"0.4\"/>\
                 <circle cx=\"{mid:.0}\" cy=\"{y}\" r=\"5\" fill=\"{color}\"/>",
                y + 4,
                row.measure,
                row.who
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

impl Row {
    /// Nearest rank.
    fn quantile(&self, q: f64) -> f64 {
        let rank = (q * self.values.len() as f64).ceil() as usize;
        self.values[rank.clamp(1, self.values.len()) - 1]
    }
}

fn line(row: &Row, ratio: Option<f64>) -> String {
    let mut text =
        format!("| {} | {} | {} | {} ", row.measure, row.who, row.unit, row.values.len());
    for q in [0.0, 0.5, 0.9, 0.99, 1.0] {
        // One value is told once.
        let shown = row.values.len() > 1 || q == 0.5;
        let value = if shown { number(row.quantile(q)) } else { String::new() };
        let _ = write!(text, "| {value} ");
    }
    let _ = write!(text, "| {} |", ratio.map_or(String::new(), number));
    text
}

/// Three digits that matter.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        small if small >= 1.0 || small == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
