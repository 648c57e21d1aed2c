//! The ratios as a picture: one bar per measure on a logarithmic scale, from 1 (as good as upstream) to the
//! right where ours is better and to the left where it is not. A tick marks the goal.

use std::fmt::Write as _;

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    pub(crate) name: String,
    /// How many times better than upstream ours is.
    pub(crate) ratio: f64,
    pub(crate) goal: Option<f64>,
}

const NAMES: f64 = 230.0;
const PLOT: f64 = 420.0;
/// For the number behind the longest bar.
const RIGHT: f64 = 60.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 34.0;
const PITCH: f64 = 24.0;
const THICKNESS: f64 = 14.0;

// Readable on white and on black: whoever looks tells which, and a viewer that does not know gets the first.
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#1f2328}\
.note{font-size:11px;fill:#59636e}.grid{stroke:#d1d9e0}.one{stroke:#59636e}\
.bar{fill:#1f7a8c}.worse{fill:#c2571a}.goal{stroke:#1f2328;stroke-width:2}\
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.note{fill:#9198a1}.grid{stroke:#3d444d}\
.one{stroke:#9198a1}.bar{fill:#4fb3c8}.worse{fill:#f0883e}.goal{stroke:#f0f6fc}}";

/// The picture as an SVG document.
pub(crate) fn svg(title: &str, bars: &[Bar]) -> String {
    let scale = Scale::of(bars);
    let foot = TOP + PITCH * bars.len() as f64;
    let (width, height) = (NAMES + PLOT + RIGHT, foot + BOTTOM);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<text x=\"8\" y=\"20\">{title}</text>\n",
        title = escaped(title)
    );
    for power in scale.low..=scale.high {
        grid_line(&mut out, &scale, power, foot);
    }
    for (index, bar) in bars.iter().enumerate() {
        draw(&mut out, &scale, bar, TOP + PITCH * index as f64);
    }
    out.push_str("</svg>\n");
    out
}

// In powers of ten, and always with 1 in it.
struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    fn of(bars: &[Bar]) -> Scale {
        let values = || bars.iter().flat_map(|bar| [Some(bar.ratio), bar.goal]);
        let logs = || values().flatten().map(f64::log10);
        Scale {
            low: logs().fold(0.0, f64::min).floor() as i32,
            high: logs().fold(1.0, f64::max).ceil() as i32,
        }
    }

    fn x(&self, ratio: f64) -> f64 {
        let part = (ratio.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        NAMES + PLOT * part
    }
}

fn grid_line(out: &mut String, scale: &Scale, power: i32, foot: f64) {
    let value = 10_f64.powi(power);
    let x = scale.x(value);
    let class = if power == 0 { "one" } else { "grid" };
    line(out, class, (x, TOP - 6.0), (x, foot));
    let label = if power == 0 {
        "as upstream".to_owned()
    } else {
        format!("{value}×")
    };
    let _ = writeln!(
        out,
        "<text class=\"note\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
        foot + 16.0
    );
}

fn draw(out: &mut String, scale: &Scale, bar: &Bar, top: f64) {
    let (one, end) = (scale.x(1.0), scale.x(bar.ratio));
    let class = if bar.ratio < 1.0 { "worse" } else { "bar" };
    let base = top + THICKNESS - 3.0;
    let name = escaped(&bar.name);
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{base:.1}\" text-anchor=\"end\">{name}</text>\n\
         <rect class=\"{class}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{THICKNESS}\"/>",
        NAMES - 8.0,
        one.min(end),
        (end - one).abs()
    );
    let goal = bar.goal.map(|goal| scale.x(goal));
    if let Some(x) = goal {
        line(out, "goal", (x, top - 3.0), (x, top + THICKNESS + 3.0));
    }
    // Behind the bar and behind the goal, so that neither runs through the number.
    let x = one.max(end).max(goal.unwrap_or(0.0)) + 6.0;
    let ratio = bar.ratio;
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{base:.1}\">{ratio:.1}×</text>");
}

fn line(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        out,
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(ratio: f64, goal: Option<f64>) -> Bar {
        Bar {
            name: "memory & more".to_owned(),
            ratio,
            goal,
        }
    }

    #[test]
    fn the_scale_is_logarithmic_and_holds_every_ratio_and_goal() {
        let scale = Scale::of(&[bar(35.0, Some(20.0)), bar(4.0, Some(150.0))]);
        assert_eq!((scale.low, scale.high), (0, 3));
        assert_eq!(scale.x(1.0), NAMES);
        assert_eq!(scale.x(1_000.0), NAMES + PLOT);
        assert_eq!(scale.x(10.0) - scale.x(1.0), scale.x(100.0) - scale.x(10.0));
        let worse = Scale::of(&[bar(0.5, None)]);
        assert_eq!((worse.low, worse.high), (-1, 1));
    }

    #[test]
    fn a_bar_grows_from_one_to_the_side_that_it_is_on() {
        let bars = [bar(10.0, None), bar(0.1, None)];
        let scale = Scale::of(&bars);
        let text = svg("a < b", &bars);
        let right = format!("class=\"bar\" x=\"{:.1}\"", scale.x(1.0));
        let left = format!("class=\"worse\" x=\"{:.1}\"", scale.x(0.1));
        assert!(text.contains(&right) && text.contains(&left), "{text}");
        assert!(text.contains("memory &amp; more") && text.contains("a &lt; b"));
    }

    #[test]
    fn only_a_goal_gets_a_tick() {
        assert!(svg("", &[bar(2.0, Some(3.0))]).contains("class=\"goal\""));
        assert!(!svg("", &[bar(2.0, None)]).contains("class=\"goal\""));
    }
}
