//! Links in HTML. Only the values of known attributes change; every other byte stays as it is.

/// Attributes that hold links, by element (HTML 4 and 5).
const LINKS: [(&str, &[&str]); 25] = [
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Elements whose content is text, whatever it looks like.
const TEXT: [&str; 8] = [
    "iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp",
];

/// A page with its links rewritten; `link` gives a new one, or nothing to leave it.
pub(in crate::outward::proxy) fn rewrite(
    page: &[u8],
    link: impl Fn(&str) -> Option<String>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(page.len() + page.len() / 16);
    let mut at = 0;
    while let Some(next) = find(page, at, b"<") {
        out.extend_from_slice(&page[at..next]);
        at = next;
        let end = match &page[at..] {
            comment if comment.starts_with(b"<!--") => after(page, at + 4, b"-->"),
            [_, first, ..] if first.is_ascii_alphabetic() => {
                at = tag(page, at, &link, &mut out);
                continue;
            }
            _ => at + 1,
        };
        out.extend_from_slice(&page[at..end]);
        at = end;
    }
    out.extend_from_slice(&page[at..]);
    out
}

// Writes a start tag, and the text of an element that holds nothing else; gives where the page goes on.
fn tag(
    page: &[u8],
    start: usize,
    link: &impl Fn(&str) -> Option<String>,
    out: &mut Vec<u8>,
) -> usize {
    let name_end = end_of(page, start + 1, |byte| {
        byte.is_ascii_whitespace() || byte == b'/' || byte == b'>'
    });
    let name = lower(&page[start + 1..name_end]);
    let row = LINKS.iter().find(|(element, _)| *element == name);
    let wanted = row.map_or(&[][..], |(_, attributes)| attributes);
    let (mut at, mut written) = (name_end, start);
    while let Some(found) = attribute(page, &mut at) {
        let key = lower(&page[found.name.clone()]);
        let value = std::str::from_utf8(&page[found.value.clone()]).ok();
        let new = value.filter(|_| wanted.contains(&&*key)).and_then(link);
        if let Some(new) = new {
            out.extend_from_slice(&page[written..found.value.start]);
            out.extend_from_slice(new.as_bytes());
            written = found.value.end;
        }
    }
    let mut end = (at + 1).min(page.len());
    if TEXT.contains(&&*name) {
        end = closing(page, end, &name);
    }
    out.extend_from_slice(&page[written..end]);
    end
}

struct Attribute {
    name: std::ops::Range<usize>,
    value: std::ops::Range<usize>,
}

// The next attribute of a tag; nothing at the tag's `>`, where `at` then stands.
fn attribute(page: &[u8], at: &mut usize) -> Option<Attribute> {
    let start = end_of(page, *at, |byte| {
        !byte.is_ascii_whitespace() && byte != b'/'
    });
    *at = start;
    if page.get(start).is_none_or(|byte| *byte == b'>') {
        return None;
    }
    // A first `=` belongs to the name.
    let name_end = end_of(page, start + 1, |byte| {
        byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>' | b'=')
    });
    let name = start..name_end;
    let equals = end_of(page, name_end, |byte| !byte.is_ascii_whitespace());
    if page.get(equals) != Some(&b'=') {
        *at = name_end;
        return Some(Attribute {
            name,
            value: name_end..name_end,
        });
    }
    let value = end_of(page, equals + 1, |byte| !byte.is_ascii_whitespace());
    let value = match page.get(value) {
        Some(quote @ (b'"' | b'\'')) => {
            let end = end_of(page, value + 1, |byte| byte == *quote);
            *at = (end + 1).min(page.len());
            value + 1..end
        }
        _ => {
            let end = end_of(page, value, |byte| {
                byte.is_ascii_whitespace() || byte == b'>'
            });
            *at = end;
            value..end
        }
    };
    Some(Attribute { name, value })
}

fn lower(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).to_ascii_lowercase()
}

fn end_of(page: &[u8], from: usize, is_end: impl Fn(u8) -> bool) -> usize {
    let from = from.min(page.len());
    page[from..]
        .iter()
        .position(|byte| is_end(*byte))
        .map_or(page.len(), |at| from + at)
}

fn find(page: &[u8], from: usize, needle: &[u8]) -> Option<usize> {
    let rest = page.get(from..)?;
    rest.windows(needle.len())
        .position(|window| window == needle)
        .map(|at| from + at)
}

fn after(page: &[u8], from: usize, needle: &[u8]) -> usize {
    find(page, from, needle).map_or(page.len(), |at| at + needle.len())
}

// Where `</name` stands, or the end.
fn closing(page: &[u8], from: usize, name: &str) -> usize {
    let mut at = from;
    while let Some(found) = find(page, at, b"</") {
        let rest = &page[found + 2..];
        if rest.len() >= name.len() && rest[..name.len()].eq_ignore_ascii_case(name.as_bytes()) {
            return found;
        }
        at = found + 2;
    }
    page.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(page: &str) -> String {
        let out = rewrite(page.as_bytes(), |link| Some(format!("[{link}]")));
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn only_links_change() {
        let cases = [
            ("<a href=\"/x\">y</a>", "<a href=\"[/x]\">y</a>"),
            ("<A HREF='/x' id=a>", "<A HREF='[/x]' id=a>"),
            (
                "<img src=/x alt=\"<a href=/y>\">",
                "<img src=[/x] alt=\"<a href=/y>\">",
            ),
            (
                "<br/><link rel=a href = \"/x\"/>",
                "<br/><link rel=a href = \"[/x]\"/>",
            ),
            (
                "<p href=/x><!-- <a href=/x> --><a href=/x>",
                "<p href=/x><!-- <a href=/x> --><a href=[/x]>",
            ),
            (
                "<script src=/x>'<a href=/y>'</script><a href=/z>",
                "<script src=[/x]>'<a href=/y>'</script><a href=[/z]>",
            ),
            ("1 < 2 <a title href=/x>", "1 < 2 <a title href=[/x]>"),
            ("<input disabled src=\"/x", "<input disabled src=\"[/x]"),
            ("</a href=/x>", "</a href=/x>"),
        ];
        for (page, wanted) in cases {
            assert_eq!(marked(page), wanted, "{page}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_page_whose_links_stay_stays_and_nothing_panics(page in "[<>a-c/ ='\"!\\-hrefsciptxé&]{0,200}") {
            let same = rewrite(page.as_bytes(), |_| None);
            proptest::prop_assert_eq!(same, page.as_bytes());
        }
    }
}
