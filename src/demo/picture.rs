//! The picture: a lane per candidate, the register, the changes, the log.

use std::sync::Arc;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::board::{Board, Kind, Lane, Life, PODS, ms};
use super::past::{CELL, Mark, Past};
use super::stage::{Stage, boottime};
use crate::timing::Timing;

/// What a picture is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'a> {
    pub(super) timing: Timing,
    pub(super) stage: &'a Arc<Stage>,
    pub(super) past: &'a Past,
}

/// Columns to the left and to the right of a lane's past.
const NAME: usize = 6;
const FACTS: usize = 34;
const BAR: usize = 10;
/// One column of the past.
const COLUMN: Duration = Duration::from_millis(500);

/// Colours, or only weight where `NO_COLOR` is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) colour: bool,
}

impl Look {
    pub(super) fn of_environment() -> Self {
        Self { colour: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    fn paint(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn mark(self, mark: Mark) -> Span<'static> {
        let (glyph, colour) = match mark {
            Mark::Leads => ("█", Color::Green),
            Mark::Follows => ("·", Color::DarkGray),
            Mark::Between => ("-", Color::Gray),
            Mark::Paused => ("=", Color::Yellow),
            Mark::CutOff => ("/", Color::Magenta),
            Mark::Killed => ("x", Color::Red),
            Mark::Unknown => (" ", Color::Reset),
        };
        Span::styled(glyph, self.paint(colour))
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, scene: Scene<'_>, look: Look) {
    let parts = [
        Constraint::Length(2),
        Constraint::Length(6),
        Constraint::Length(2),
        Constraint::Fill(2),
        Constraint::Fill(2),
        Constraint::Length(1),
    ];
    let [title, lanes, register, changes, log, keys] = Layout::vertical(parts).areas(frame.area());
    scene.stage.look(|board| {
        put(frame, title, title_lines(board, look, title.width.into()));
        put(frame, lanes, lane_lines(board, scene, look, lanes.width.into()));
        put(frame, register, register_lines(board, look));
        put(frame, changes, change_lines(board, look, changes.height.into()));
        put(frame, log, log_lines(board, look, log.height.into()));
    });
    put(frame, keys, vec![keys_line(look)]);
}

fn put(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>) {
    frame.render_widget(Paragraph::new(lines), area);
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn title_lines<'a>(board: &Board, look: Look, width: usize) -> Vec<Line<'a>> {
    let ran = boottime().saturating_sub(board.start).as_secs();
    let clock = format!("{:02}:{:02}", ran / 60, ran % 60);
    let left = format!("tenure demo   {}", board.title);
    let gap = width.saturating_sub(left.chars().count() + clock.len());
    vec![
        Line::from(vec![
            Span::styled("tenure demo", bold().patch(look.paint(Color::Cyan))),
            Span::raw(left["tenure demo".len()..].to_owned() + &" ".repeat(gap) + &clock),
        ]),
        Line::default(),
    ]
}

fn lane_lines<'a>(board: &Board, scene: Scene<'_>, look: Look, width: usize) -> Vec<Line<'a>> {
    let now = boottime();
    let columns = width.saturating_sub(NAME + FACTS + 1);
    let cells_each = (COLUMN.as_millis() / CELL.as_millis()).max(1) as usize;
    let lane = |pod: usize| {
        let past = scene.past.columns(pod, columns, cells_each);
        let mut spans = vec![Span::styled(format!("{:NAME$}", PODS[pod]), bold())];
        spans.push(Span::raw(" ".repeat(columns.saturating_sub(past.len()))));
        spans.extend(past.into_iter().map(|mark| look.mark(mark)));
        spans.push(Span::raw(" "));
        spans.extend(facts(&board.lanes[pod], scene.timing.renew_deadline(), now, look));
        Line::from(spans)
    };
    let head = format!(
        "{:columns$} {:12}{:>6} {:BAR$}",
        format!("{:NAME$}{}", "", "one column is half a second"),
        "state",
        "epoch",
        "valid for",
        columns = columns + NAME
    );
    let head = Line::styled(head, look.paint(Color::DarkGray));
    let legend = Line::from(vec![
        Span::raw(" ".repeat(NAME)),
        look.mark(Mark::Leads),
        Span::raw(" says leader  "),
        look.mark(Mark::Follows),
        Span::raw(" follows  "),
        look.mark(Mark::Paused),
        Span::raw(" stands still  "),
        look.mark(Mark::CutOff),
        Span::raw(" cut off  "),
        look.mark(Mark::Killed),
        Span::raw(" killed  "),
        look.mark(Mark::Between),
        Span::raw(" between"),
    ]);
    vec![head, lane(0), lane(1), lane(2), legend, Line::default()]
}

/// State, epoch, and the validity that is left as a bar.
fn facts<'a>(lane: &Lane, renew_deadline: Duration, now: Duration, look: Look) -> Vec<Span<'a>> {
    let left = lane.valid_for(now);
    let leads = !left.is_zero();
    let state = match (lane.life, &lane.said) {
        (Life::Killed, _) => "killed",
        (Life::Paused, _) => "stands still",
        (_, None) => "starting",
        (_, Some(said)) if said.leader && !leads => "silent",
        (_, Some(said)) => &said.state,
    };
    let colour = match lane.life {
        Life::Killed => Color::Red,
        Life::Paused => Color::Yellow,
        Life::CutOff => Color::Magenta,
        Life::Running if leads => Color::Green,
        Life::Running => Color::Reset,
    };
    let epoch = lane.said.as_ref().and_then(|said| said.epoch).filter(|_| leads);
    let epoch = epoch.map_or(String::new(), |epoch| epoch.to_string());
    let tenths = (left.as_millis() * BAR as u128).div_ceil(renew_deadline.as_millis().max(1));
    let full = usize::try_from(tenths).unwrap_or(BAR).min(BAR);
    let seconds = if leads { format!(" {:.1}s", left.as_secs_f64()) } else { String::new() };
    vec![
        Span::styled(format!("{state:12}"), look.paint(colour)),
        Span::styled(format!("{epoch:>6} "), bold()),
        Span::styled("█".repeat(full), look.paint(colour)),
        Span::styled("·".repeat(BAR - full), look.paint(Color::DarkGray)),
        Span::raw(seconds),
    ]
}

fn register_lines<'a>(board: &Board, look: Look) -> Vec<Line<'a>> {
    let register = &board.register;
    let mut spans = vec![
        Span::styled("register", bold()),
        Span::raw(format!("  {} writes accepted, ", register.accepted)),
        Span::styled(format!("{} stale refused", register.refused), look.paint(Color::Yellow)),
        Span::raw(format!(", newest epoch {}", register.newest_epoch)),
    ];
    if register.stale_accepted > 0 {
        let text =
            format!("  DAMAGE: {} stale taken, {} lost", register.stale_accepted, register.lost());
        spans.push(Span::styled(text, bold().patch(look.paint(Color::Red))));
    }
    vec![Line::from(spans), Line::default()]
}

fn change_lines<'a>(board: &Board, look: Look, height: usize) -> Vec<Line<'a>> {
    let head = format!(
        "{:10}{:8}{:8}{:>8}{:>16}{:>18}",
        "change", "from", "to", "epoch", "took", "nobody leads"
    );
    let rows = height.saturating_sub(2);
    let newest = board.changes.iter().skip(board.changes.len().saturating_sub(rows));
    let row = |change: &super::board::Change| {
        let text = format!(
            "{:10}{:8}{:8}{:>8}{:>13} ms{:>15} ms",
            change.why().replace('_', " "),
            change.from.map_or("-", |pod| PODS[pod]),
            PODS[change.to],
            change.epoch,
            ms(change.took),
            ms(change.leaderless)
        );
        let hand_over = change.kind == Some(Kind::Release);
        Line::styled(text, look.paint(if hand_over { Color::Green } else { Color::Reset }))
    };
    std::iter::once(Line::styled(head, bold())).chain(newest.map(row)).collect()
}

fn log_lines<'a>(board: &Board, look: Look, height: usize) -> Vec<Line<'a>> {
    let skip = board.log.len().saturating_sub(height.saturating_sub(1));
    let line = |(at, text): &(Duration, String)| {
        let colour = if text.contains("DAMAGE") || text.contains("refused") {
            Color::Yellow
        } else {
            Color::Reset
        };
        Line::from(vec![
            Span::styled(format!("{:7.2}  ", at.as_secs_f64()), look.paint(Color::DarkGray)),
            Span::styled(text.clone(), look.paint(colour)),
        ])
    };
    board.log.iter().skip(skip).map(line).collect()
}

fn keys_line<'a>(look: Look) -> Line<'a> {
    let text = "to the leader: r release  k kill  p pause  c cut off      q quit";
    Line::styled(text, look.paint(Color::Cyan))
}
