//! A scene as SVG.
//!
//! Every shape has its light colours as attributes, which any program understands, and a class, through which the style
//! sheet of a page gives it others.

use std::fmt::Write as _;

use super::Colour;
use super::scene::{Anchor, Dash, Label, Line, Scene, Seen, Shape, Spot, Weight};

/// The SVG of a scene, described by `description` for those who do not see it.
pub(in crate::report) fn svg(scene: &Scene, description: &str) -> String {
    let (width, height) = (number(scene.width), number(scene.height));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{}\" \
         font-family=\"Roboto, 'Helvetica Neue', Arial, sans-serif\">\n\
         <rect class=\"ground\" width=\"{width}\" height=\"{height}\" fill=\"{}\"/>\n",
        escaped(description),
        Colour::Ground.hex(),
    );
    for shape in &scene.shapes {
        write_shape(&mut text, shape);
    }
    text.push_str("</svg>\n");
    text
}

/// `text` for content and for attributes of XML and HTML. Characters that XML has no way to write become spaces.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' => escaped.push('\n'),
            '\u{fffe}' | '\u{ffff}' => escaped.push(' '),
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}

// Writing to a String can't fail, here and below.
fn write_shape(text: &mut String, shape: &Shape) {
    match shape {
        Shape::Line(line) => write_line(text, line),
        Shape::Area { corners, colour } => {
            let _ = writeln!(
                text,
                "<path class=\"{} area\" d=\"{}Z\" fill=\"{}\" fill-opacity=\"0.5\"/>",
                colour.class(),
                path(corners),
                colour.hex()
            );
        }
        Shape::Rectangle { corner, size, colour, hover } => {
            let _ = writeln!(
                text,
                "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"><title>{}</title></rect>",
                colour.class(),
                number(corner.0),
                number(corner.1),
                number(size.0),
                number(size.1),
                colour.hex(),
                escaped(hover)
            );
        }
        Shape::Dot { centre, colour, hover, seen } => write_dot(text, *centre, *colour, (hover, *seen)),
        Shape::Text(label) => write_label(text, label),
    }
}

fn write_line(text: &mut String, line: &Line) {
    let dash = dash_attribute(line.dash);
    let _ = writeln!(
        text,
        "<path class=\"{} line\" d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"{dash}/>",
        line.colour.class(),
        path(&line.spots),
        line.colour.hex(),
        number(line.width),
    );
}

fn dash_attribute(dash: Dash) -> String {
    dash.pattern().map_or_else(String::new, |[stroke, gap]| format!(" stroke-dasharray=\"{stroke} {gap}\""))
}

fn write_dot(text: &mut String, (x, y): Spot, colour: Colour, (hover, seen): (&str, Seen)) {
    let look = match seen {
        Seen::Always => "",
        Seen::UnderPointer => " hover\" fill-opacity=\"0",
    };
    let _ = writeln!(
        text,
        "<circle class=\"{}{look}\" cx=\"{}\" cy=\"{}\" r=\"4\" fill=\"{}\"><title>{}</title></circle>",
        colour.class(),
        number(x),
        number(y),
        colour.hex(),
        escaped(hover)
    );
}

fn write_label(text: &mut String, label: &Label) {
    let anchor = match label.anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    };
    let weight = match label.weight {
        Weight::Regular => "",
        Weight::Medium => " font-weight=\"500\"",
    };
    let _ = writeln!(
        text,
        "<text class=\"{}\" x=\"{}\" y=\"{}\" font-size=\"{}\"{anchor}{weight} fill=\"{}\">{}</text>",
        label.colour.class(),
        number(label.at.0),
        number(label.at.1),
        number(label.size),
        label.colour.hex(),
        escaped(&label.text)
    );
}

fn path(spots: &[Spot]) -> String {
    let mut path = String::new();
    for (index, (x, y)) in spots.iter().enumerate() {
        let _ = write!(path, "{}{} {}", if index == 0 { 'M' } else { 'L' }, number(*x), number(*y));
    }
    path
}

/// With one decimal at most: a tenth of a pixel is finer than anybody sees.
fn number(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    // Adding zero takes the sign from a zero.
    (rounded + 0.0).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out_of_a_text() {
        assert_eq!(
            escaped("</title><img src='x' onerror=\"a&b\">\u{0}"),
            "&lt;/title&gt;&lt;img src=&#39;x&#39; onerror=&quot;a&amp;b&quot;&gt; "
        );
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([number(1.0), number(0.25), number(-0.01)], ["1", "0.3", "0"]);
    }
}
