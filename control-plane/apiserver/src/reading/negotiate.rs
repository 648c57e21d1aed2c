//! Which representation a client gets: media types, and the `as=` transformations on top of them.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use crate::status::{ApiError, Result};

/// How bytes are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl Format {
    /// Its media type.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Yaml => "application/yaml",
            Format::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// What is shown of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    /// The whole object.
    Object,
    /// Rows and cells, in `meta.k8s.io` v1 or v1beta1.
    Table {
        /// `v1` or `v1beta1`.
        version: &'static str,
    },
    /// Metadata only.
    Partial {
        /// `v1` or `v1beta1`.
        version: &'static str,
        /// Whether it was asked for by the name of the list kind.
        list: bool,
    },
}

/// What a path has to offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    /// Documents without Table and metadata-only forms.
    Documents,
    /// One object, in all forms.
    Objects,
    /// A collection, in all forms and as a watch.
    Lists,
    /// Custom resources, which protobuf can only show the metadata of.
    Custom,
}

impl Offer {
    // What upstream's HTTP layer says is available.
    fn representations(self) -> &'static str {
        match self {
            Offer::Documents | Offer::Objects => OFFERED,
            Offer::Custom => TEXTUAL,
            Offer::Lists => concat!(
                "application/json, application/yaml, application/vnd.kubernetes.protobuf, ",
                "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
            ),
        }
    }
}

/// What the client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// Encoding.
    pub(crate) format: Format,
    /// Shape.
    pub(crate) shape: Shape,
    /// Indented JSON for people.
    pub(crate) pretty: bool,
}

impl Accepted {
    /// Compact JSON objects.
    pub(crate) const JSON: Accepted = Accepted {
        format: Format::Json,
        shape: Shape::Object,
        pretty: false,
    };
}

const TEXTUAL: &str = "application/json, application/yaml";
const OFFERED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// One clause of an Accept header.
#[derive(Debug)]
struct Clause<'a> {
    media: &'a str,
    params: Vec<(&'a str, &'a str)>,
    quality: u16,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Clause<'a> {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let params: Vec<_> = parts.filter_map(|p| p.split_once('=')).collect();
        let quality = params
            .iter()
            .find(|(key, _)| *key == "q")
            .and_then(|(_, value)| value.parse::<f32>().ok())
            .map_or(1000, |q| (q.clamp(0.0, 1.0) * 1000.0) as u16);
        Clause {
            media,
            params,
            quality,
        }
    }

    fn param(&self, name: &str) -> Option<&'a str> {
        self.params
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| *value)
    }

    fn format(&self) -> Option<Format> {
        match self.media {
            "application/json" | "*/*" => Some(Format::Json),
            "application/yaml" => Some(Format::Yaml),
            "application/vnd.kubernetes.protobuf" => Some(Format::Protobuf),
            _ => None,
        }
    }

    // A clause with an `as` we do not know is passed over, as upstream does.
    fn shape(&self, transforms: bool) -> Option<Shape> {
        let version = match self.param("v") {
            Some("v1") => "v1",
            Some("v1beta1") => "v1beta1",
            _ if self.param("as").is_some() => return None,
            _ => "v1",
        };
        match (self.param("as"), self.param("g")) {
            (None, _) => Some(Shape::Object),
            (Some("Table"), Some("meta.k8s.io")) if transforms => Some(Shape::Table { version }),
            (
                Some(kind @ ("PartialObjectMetadata" | "PartialObjectMetadataList")),
                Some("meta.k8s.io"),
            ) if transforms => {
                let list = kind.ends_with("List");
                Some(Shape::Partial { version, list })
            }
            _ => None,
        }
    }
}

fn clauses(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let text = headers
        .get(ACCEPT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    clauses_of(text)
}

/// The media types of an Accept header, best first; anything, where it names none.
pub(crate) fn by_preference(accept: &str) -> impl Iterator<Item = &str> {
    let named = clauses_of(accept);
    let anything = named.is_empty().then_some("*/*");
    let media = named.into_iter().map(|clause| clause.media);
    media.chain(anything)
}

fn clauses_of(text: &str) -> Vec<Clause<'_>> {
    let mut found: Vec<_> = text
        .split(',')
        .filter(|c| !c.trim().is_empty())
        .map(|c| Clause::parse(c.trim()))
        .collect();
    found.sort_by_key(|clause| std::cmp::Reverse(clause.quality));
    found
}

/// Chooses a representation.
pub(crate) fn accept(
    headers: &HeaderMap,
    pretty_param: Option<&str>,
    offer: Offer,
) -> Result<Accepted> {
    let transforms = offer != Offer::Documents;
    let clauses = clauses(headers);
    let pretty = wants_pretty(headers, pretty_param);
    if clauses.is_empty() {
        return Ok(Accepted {
            format: Format::Json,
            shape: Shape::Object,
            pretty,
        });
    }
    for clause in &clauses {
        let (Some(format), Some(shape)) = (clause.format(), clause.shape(transforms)) else {
            continue;
        };
        // Tables exist in JSON and YAML only.
        let textual = matches!(shape, Shape::Table { .. })
            || (offer == Offer::Custom && shape == Shape::Object);
        if textual && format == Format::Protobuf {
            continue;
        }
        let pretty = pretty || clause.param("pretty") == Some("1");
        return Ok(Accepted {
            format,
            shape,
            pretty,
        });
    }
    // Upstream's HTTP layer looks at media types alone, and only what it lets pass is looked into.
    match clauses.iter().any(|clause| clause.format().is_some()) {
        true if offer == Offer::Custom => Err(ApiError::not_acceptable(TEXTUAL)),
        true => Err(ApiError::not_acceptable(OFFERED)),
        false => Err(ApiError::no_representation(offer.representations())),
    }
}

/// Whether the client takes JSON in any form.
pub(crate) fn takes_json(headers: &HeaderMap) -> bool {
    let clauses = clauses(headers);
    clauses.is_empty() || clauses.iter().any(|c| c.format() == Some(Format::Json))
}

/// Whether the client asks for aggregated discovery before anything else we offer.
pub(crate) fn wants_aggregated_discovery(headers: &HeaderMap) -> bool {
    for clause in clauses(headers) {
        let aggregated = clause.param("g") == Some("apidiscovery.k8s.io")
            && clause.param("v") == Some("v2")
            && clause.param("as") == Some("APIGroupDiscoveryList");
        if aggregated && clause.format().is_some() {
            return true;
        }
        if clause.param("as").is_none() && clause.format().is_some() {
            return false;
        }
    }
    false
}

// People get indented JSON: ?pretty=, or a user agent that belongs to a person.
fn wants_pretty(headers: &HeaderMap, param: Option<&str>) -> bool {
    if let Some(value) = param {
        return value != "false" && value != "0";
    }
    let agent = headers
        .get(USER_AGENT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"]
        .iter()
        .any(|p| agent.starts_with(p))
}

/// The format of a request body.
pub(crate) fn body_format(headers: &HeaderMap) -> Result<Format> {
    match body_media(headers) {
        "" | "application/json" => Ok(Format::Json),
        "application/yaml" => Ok(Format::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(Format::Protobuf),
        _ => Err(ApiError::unsupported_media_type(OFFERED)),
    }
}

/// The media type of a request body, without parameters.
pub(crate) fn body_media(headers: &HeaderMap) -> &str {
    let text = headers
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        let mut map = HeaderMap::new();
        map.insert(ACCEPT, accept.parse().expect("a header"));
        map
    }

    #[test]
    fn clauses_are_tried_by_quality_then_order() {
        let cases = [
            ("*/*", Format::Json, Shape::Object),
            (
                "application/vnd.kubernetes.protobuf, */*",
                Format::Protobuf,
                Shape::Object,
            ),
            (
                "application/yaml;q=0.5, application/json;q=0.9",
                Format::Json,
                Shape::Object,
            ),
            ("text/html, application/yaml", Format::Yaml, Shape::Object),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                Format::Json,
                Shape::Table { version: "v1" },
            ),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Format::Protobuf,
                Shape::Partial {
                    version: "v1",
                    list: true,
                },
            ),
        ];
        for (text, format, shape) in cases {
            let accepted = accept(&headers(text), None, Offer::Objects).expect(text);
            assert_eq!((accepted.format, accepted.shape), (format, shape), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_made_is_not_acceptable() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let cases = [
            (
                table,
                Offer::Documents,
                format!("only the following media types are accepted: {OFFERED}"),
            ),
            (
                "text/html",
                Offer::Objects,
                format!("406: Not Acceptable\n\nAvailable representations: {OFFERED}"),
            ),
            (
                "application/*",
                Offer::Lists,
                format!(
                    "406: Not Acceptable\n\nAvailable representations: {OFFERED}, \
                     application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
                ),
            ),
        ];
        for (text, offer, message) in cases {
            let error = accept(&headers(text), None, offer).expect_err(text);
            assert_eq!((error.code.as_u16(), error.message), (406, message));
        }
    }

    #[test]
    fn aggregated_discovery_is_seen_among_other_clauses() {
        let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
            application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert!(wants_aggregated_discovery(&headers(kubectl)));
        assert!(!wants_aggregated_discovery(&headers("application/json")));
    }

    proptest::proptest! {
        #[test]
        fn no_header_makes_negotiation_panic(text in "[ -~]{0,200}") {
            let headers = headers(&text);
            let _ = accept(&headers, None, Offer::Lists);
            let _ = wants_aggregated_discovery(&headers);
        }
    }
}
