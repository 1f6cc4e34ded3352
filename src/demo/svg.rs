//! The picture as SVG: the very cells that a terminal of 80 x 24 would show.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::picture::{Look, Scene, draw};

const COLUMNS: u16 = 80;
const ROWS: u16 = 26;
/// Pixels of one cell, and around them all.
const CELL: (u16, u16) = (9, 18);
const MARGIN: u16 = 14;

/// Writes the picture of this moment.
pub(super) fn write(path: &Path, scene: &Scene<'_>) -> io::Result<()> {
    let mut terminal = Terminal::new(TestBackend::new(COLUMNS, ROWS)).map_err(io::Error::other)?;
    let look = Look { colour: true };
    terminal.draw(|frame| draw(frame, *scene, look)).map_err(io::Error::other)?;
    std::fs::write(path, svg(terminal.backend().buffer()))
}

fn svg(buffer: &Buffer) -> String {
    let (width, height) = (COLUMNS * CELL.0 + 2 * MARGIN, ROWS * CELL.1 + 2 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace\" \
         font-size=\"14\" role=\"img\" aria-label=\"tenure demo in a terminal\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#10151c\"/>\n"
    );
    for row in 0..ROWS {
        let mut column = 0;
        while column < COLUMNS {
            column = run(&mut out, buffer, row, column);
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Cells of one look in a row; returns the column after them.
fn run(out: &mut String, buffer: &Buffer, row: u16, from: u16) -> u16 {
    let first = &buffer[(from, row)];
    let alike = |cell: &Cell| {
        cell.fg == first.fg
            && cell.modifier == first.modifier
            && (cell.symbol() == "█") == (first.symbol() == "█")
    };
    let to = (from..COLUMNS).find(|column| !alike(&buffer[(*column, row)])).unwrap_or(COLUMNS);
    let text: String = (from..to).map(|column| buffer[(column, row)].symbol()).collect();
    let (x, y) = (MARGIN + from * CELL.0, MARGIN + row * CELL.1);
    let (width, fill) = ((to - from) * CELL.0, hex(first.fg));
    // Writing to a String cannot fail.
    let _ = if first.symbol() == "█" {
        // Drawn, since fonts differ in how much of its cell this one fills.
        let (top, height) = (y + 3, CELL.1 - 6);
        writeln!(
            out,
            "<rect x=\"{x}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"/>"
        )
    } else if text.trim().is_empty() {
        Ok(())
    } else {
        let bold = first.modifier.contains(Modifier::BOLD);
        let weight = if bold { " font-weight=\"bold\"" } else { "" };
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let base = y + 13;
        writeln!(
            out,
            "<text x=\"{x}\" y=\"{base}\" fill=\"{fill}\" textLength=\"{width}\" \
             xml:space=\"preserve\"{weight}>{text}</text>"
        )
    };
    to
}

fn hex(colour: Color) -> &'static str {
    match colour {
        Color::Green => "#3fb950",
        Color::Red => "#f85149",
        Color::Yellow => "#e3b341",
        Color::Magenta => "#bc8cff",
        Color::Cyan => "#39c5cf",
        Color::DarkGray => "#6e7681",
        Color::Gray => "#9aa4af",
        _ => "#d7dde4",
    }
}
