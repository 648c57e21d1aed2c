//! GET on a collection: one consistent state, in pages if asked for.

use std::sync::Arc;

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use base64::{DecodeError, Engine as _};
use serde_json::{Value, json};

use crate::api::Api;
use crate::door::request::{ListOptions, VersionMatch};
use crate::reading::collection::Collection;
use crate::reading::select::Selection;
use crate::reading::stored::Stored;
use crate::reading::view::ListMeta;
use crate::status::{ApiError, Result};

/// A page of objects and the list's metadata.
#[derive(Debug)]
pub(crate) struct Page {
    /// Selected objects in key order.
    pub(crate) items: Vec<Arc<Stored>>,
    /// Metadata.
    pub(crate) meta: ListMeta,
}

/// A place in a list: the revision it is pinned to and the key after which it goes on.
#[derive(Debug, PartialEq, Eq)]
struct Token {
    /// `None` goes on at the newest revision.
    revision: Option<u64>,
    /// Key inside the collection.
    after: String,
}

impl Token {
    // Upstream's form, so that nothing breaks if a client looks inside.
    fn encode(&self) -> String {
        let revision = self
            .revision
            .map_or(-1, |r| i64::try_from(r).unwrap_or(i64::MAX));
        let start = format!("{}\u{0}", self.after);
        let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(text: &str) -> Result<Token> {
        let bad = |why: &str| {
            ApiError::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let bytes = LENIENT
            .decode(text)
            .map_err(|e| bad(&go_base64_error(&e, text)))?;
        let token = objects::json::parse(&bytes).map_err(|e| bad(&e.to_string()))?;
        let (version, revision, start) = token_fields(&token.value).map_err(|why| bad(&why))?;
        if version != "meta.k8s.io/v1" {
            let why = format!("server does not recognize this encoded version {version}");
            return Err(bad(&why));
        }
        if revision == 0 {
            return Err(bad(
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ));
        }
        if start.is_empty() {
            return Err(bad("encoded start key empty (version meta.k8s.io/v1)"));
        }
        // No client gets out of the collection by a path that goes up.
        let after = start.trim_start_matches('/').trim_end_matches('\u{0}');
        let is_odd = |part: &str| part.is_empty() || part == "." || part == "..";
        if after.split('/').any(is_odd) {
            return Err(bad(start));
        }
        Ok(Token {
            revision: u64::try_from(revision).ok(),
            after: after.to_owned(),
        })
    }
}

/// Go's `RawURLEncoding`, which does not mind bits left over at the end.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

fn go_base64_error(error: &DecodeError, text: &str) -> String {
    let at = match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => *at,
        DecodeError::InvalidLength(_) => text.len() / 4 * 4,
        DecodeError::InvalidPadding => text.find('=').unwrap_or_default(),
    };
    format!("illegal base64 data at input byte {at}")
}

// The parts of a token, or what Go's decoder says of one that is of another type.
fn token_fields(token: &Value) -> Result<(&str, i64, &str), String> {
    let wrong = |found: &Value, what: &str| {
        let found = match found {
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
            Value::Null | Value::Object(_) => "object",
        };
        format!("json: cannot unmarshal {found} into Go {what}")
    };
    let text = |field: &str| match token.get(field) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(other) => {
            let what = format!("struct field continueToken.{field} of type string");
            Err(wrong(other, &what))
        }
    };
    if !matches!(token, Value::Object(_) | Value::Null) {
        return Err(wrong(token, "value of type storage.continueToken"));
    }
    let revision = match token.get("rv") {
        None | Some(Value::Null) => 0,
        Some(value) => value
            .as_i64()
            .ok_or_else(|| wrong(value, "struct field continueToken.rv of type int64"))?,
    };
    Ok((text("v")?, revision, text("start")?))
}

/// Lists what the options ask for.
pub(crate) async fn list(
    api: &Api,
    collection: &Collection,
    selection: &Selection,
    options: &ListOptions,
) -> Result<Page> {
    let (store, cache) = (&*api.store, &*api.cache);
    api.all_readable(collection.prefix())?;
    if let Some(text) = &options.continue_token {
        let token = Token::decode(text)?;
        return match token.revision {
            Some(revision) => exact(
                api,
                collection,
                selection,
                options.limit,
                revision,
                Some(&token.after),
            )
            .await
            .map_err(|error| resume_hint(error, &token.after)),
            None => {
                cache.reach(store.revision().await?).await?;
                let after = Some(token.after.as_str());
                newest(api, collection, selection, options.limit, after).await
            }
        };
    }
    match options.version_match {
        VersionMatch::Latest => {
            let newest = store.revision().await?;
            // A cache that lags (an etcd that others use too) must not make a list fail.
            if cache.reach(newest).await.is_err() {
                return exact(api, collection, selection, options.limit, newest, None).await;
            }
        }
        VersionMatch::Any => {}
        VersionMatch::NotOlderThan(revision) => cache.reach(revision).await?,
        VersionMatch::Exact(revision) => {
            cache.reach(revision).await?;
            return exact(api, collection, selection, options.limit, revision, None).await;
        }
    }
    // Upstream's cache ignores the limit for "any" reads.
    let limit = if options.version_match == VersionMatch::Any {
        0
    } else {
        options.limit
    };
    newest(api, collection, selection, limit, None).await
}

fn resume_hint(error: ApiError, after: &str) -> ApiError {
    if error.reason != "Expired" {
        return error;
    }
    let token = Token {
        revision: None,
        after: after.to_owned(),
    }
    .encode();
    ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of \
         the results. Continuing with the provided token results in an inconsistent list - objects that were \
         created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    )
    .with_continue(token)
}

async fn newest(
    api: &Api,
    collection: &Collection,
    selection: &Selection,
    limit: usize,
    after: Option<&str>,
) -> Result<Page> {
    let reached = api.cache.revision();
    if let Some(key) = selection.object_key() {
        let found = collection.get(&key).into_iter().collect();
        let found = api.in_version(selection.resource(), collection, found);
        let mut found = found.await?;
        found.retain(|stored| selection.matches(&key, stored));
        let revision = reached.max(found.first().map_or(0, |s| s.revision));
        let meta = ListMeta {
            resource_version: revision,
            ..ListMeta::default()
        };
        return Ok(Page { items: found, meta });
    }
    let state = collection.objects(&selection.within(), after);
    let resource_version = reached.max(state.revision);
    served(
        api,
        collection,
        state.objects,
        selection,
        limit,
        resource_version,
    )
    .await
}

// Where a webhook converts, selections are about what it makes of the objects: all of them, if something inside of
// them decides, and otherwise only those of the page.
async fn served(
    api: &Api,
    collection: &Collection,
    mut objects: Vec<(Arc<str>, Arc<Stored>)>,
    selection: &Selection,
    limit: usize,
    resource_version: u64,
) -> Result<Page> {
    let resource = selection.resource();
    if collection.webhook.is_some() && selection.looks_inside() {
        let (keys, stored): (Vec<_>, Vec<_>) = objects.into_iter().unzip();
        let stored = api.in_version(resource, collection, stored).await?;
        objects = keys.into_iter().zip(stored).collect();
    }
    let mut page = paged(objects, selection, limit, resource_version);
    page.items = api.in_version(resource, collection, page.items).await?;
    Ok(page)
}

fn paged(
    objects: Vec<(Arc<str>, Arc<Stored>)>,
    selection: &Selection,
    limit: usize,
    resource_version: u64,
) -> Page {
    let total = objects.len();
    let mut meta = ListMeta {
        resource_version,
        ..ListMeta::default()
    };
    let mut items = Vec::with_capacity(if limit == 0 { total } else { limit.min(total) });
    let mut last: Option<Arc<str>> = None;
    for (position, (key, stored)) in objects.into_iter().enumerate() {
        if !selection.matches(&key, &stored) {
            continue;
        }
        if limit > 0 && items.len() == limit {
            let after = last.as_deref().unwrap_or_default().to_owned();
            meta.continue_token = Some(
                Token {
                    revision: Some(resource_version),
                    after,
                }
                .encode(),
            );
            meta.remaining = selection.is_unfiltered().then_some(total - position);
            break;
        }
        if limit > 0 {
            last = Some(key);
        }
        items.push(stored);
    }
    Page { items, meta }
}

async fn exact(
    api: &Api,
    collection: &Collection,
    selection: &Selection,
    limit: usize,
    revision: u64,
    after: Option<&str>,
) -> Result<Page> {
    let prefix = collection.prefix();
    let within = format!("{prefix}{}", selection.within());
    let end = end_of(&within);
    let start = match after {
        Some(key) if format!("{prefix}{key}").as_str() >= within.as_str() => {
            format!("{prefix}{key}\0")
        }
        _ => within,
    };
    // Filtered pages may need to look at more keys than they return; the whole range is one read of
    // the same revision, in memory for the embedded engine.
    let fetch = if limit > 0 && selection.is_unfiltered() {
        limit + 1
    } else {
        0
    };
    let range = api.store.range(&start, &end, fetch, Some(revision)).await?;
    let count = range.count;
    let mut objects = Vec::with_capacity(range.entries.len());
    for kv in range.entries {
        let stored = collection
            .form
            .adopt(&kv.value, kv.mod_revision)
            .map_err(ApiError::internal)?;
        objects.push((kv.key[prefix.len()..].into(), Arc::new(stored)));
    }
    let mut page = served(api, collection, objects, selection, limit, revision).await?;
    if page.meta.remaining.is_some() {
        page.meta.remaining = Some(count - page.items.len());
    }
    Ok(page)
}

// The first key after all keys with this prefix; prefixes end in '/', whose successor is '0'.
fn end_of(prefix: &str) -> String {
    format!("{}0", prefix.strip_suffix('/').unwrap_or(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_round_trip() {
        let pinned = Token {
            revision: Some(12),
            after: "default/a".into(),
        };
        assert_eq!(Token::decode(&pinned.encode()).expect("ours"), pinned);
        let newest = Token {
            revision: None,
            after: "default/a".into(),
        };
        assert_eq!(Token::decode(&newest.encode()).expect("ours"), newest);
    }

    #[test]
    fn foreign_tokens_are_refused() {
        for text in [
            "",
            "!!",
            "e30",
            &URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":3,"start":"../x"}"#),
        ] {
            assert_eq!(
                Token::decode(text).expect_err("foreign").code.as_u16(),
                400,
                "{text}"
            );
        }
    }

    #[test]
    fn refusals_of_tokens_are_in_upstreams_words() {
        let cases = [
            ("!!!", "illegal base64 data at input byte 0"),
            ("abcde", "illegal base64 data at input byte 4"),
        ];
        let encoded = [
            (
                "notjson",
                "invalid character 'o' in literal null (expecting 'u')",
            ),
            ("{}", "server does not recognize this encoded version "),
            (
                "[]",
                "json: cannot unmarshal array into Go value of type storage.continueToken",
            ),
            (
                r#"{"v":3}"#,
                "json: cannot unmarshal number into Go struct field continueToken.v of type string",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":"x","start":"a"}"#,
                "json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","start":"a"}"#,
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":1}"#,
                "encoded start key empty (version meta.k8s.io/v1)",
            ),
            (r#"{"v":"meta.k8s.io/v1","rv":5,"start":"../a"}"#, "../a"),
        ];
        let encoded = encoded.map(|(json, why)| (URL_SAFE_NO_PAD.encode(json), why));
        let plain = cases.map(|(text, why)| (text.to_owned(), why));
        for (text, why) in plain.into_iter().chain(encoded) {
            let message = Token::decode(&text).expect_err(&text).message;
            let wanted = format!("invalid continue token: continue key is not valid: {why}");
            assert_eq!(message, wanted);
        }
    }

    #[test]
    fn the_end_of_a_prefix_is_after_all_its_keys() {
        let end = end_of("/registry/pods/a/");
        assert!("/registry/pods/a/zzzz" < end.as_str());
        assert!("/registry/pods/a-b/x" < "/registry/pods/a/" && end.as_str() < "/registry/pods/b/");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_token_reader_panic(text in ".{0,200}", json in ".{0,80}") {
            let _ = Token::decode(&text);
            let _ = Token::decode(&URL_SAFE_NO_PAD.encode(json));
        }

        #[test]
        fn every_token_survives(revision in 1..u64::MAX / 2, after in "[a-z][a-z0-9./-]{0,40}[a-z0-9]") {
            let token = Token { revision: Some(revision), after };
            if !token.after.split('/').any(|p| p.is_empty() || p == "." || p == "..") {
                proptest::prop_assert_eq!(Token::decode(&token.encode()).expect("ours"), token);
            }
        }
    }
}
