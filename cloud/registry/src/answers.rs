//! Requests and their answers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::TryStreamExt as _;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

use crate::refusal::{Code, Refusal};
use crate::route::{Digest, Reference, Route, Subject, query, route, writes};
use crate::shelf::{Shelf, digest_of};

pub(crate) type Body = BoxBody<Bytes, std::io::Error>;
type Answer = Result<Response<Body>, Refusal>;

/// The most that a manifest may have; the specification asks for at least this much.
const MANIFEST_LIMIT: usize = 4 << 20;
const PIECE: usize = 256 << 10;
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Answers requests over a shelf.
#[derive(Debug)]
pub(crate) struct Desk {
    shelf: Shelf,
    token: Option<String>,
}

/// A request without its body.
struct Asked {
    method: Method,
    name: String,
    query: Vec<(String, String)>,
    headers: HeaderMap,
}

impl Asked {
    fn value(&self, key: &str) -> Option<&str> {
        let mut all = self.query.iter();
        all.find(|(found, _)| found == key)
            .map(|(_, value)| value.as_str())
    }

    fn header(&self, name: impl header::AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl Desk {
    pub(crate) fn new(shelf: Shelf, token: Option<String>) -> Desk {
        Desk { shelf, token }
    }

    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answer = self.decide(request).await;
        let mut response = answer.unwrap_or_else(|refusal| refused(&refusal));
        tracing::debug!(%method, path, status = response.status().as_u16(), "answered");
        let version = HeaderValue::from_static("registry/2.0");
        response
            .headers_mut()
            .insert("docker-distribution-api-version", version);
        response
    }

    async fn decide(&self, request: Request<Incoming>) -> Answer {
        let (parts, body) = request.into_parts();
        self.admit(&parts.headers)?;
        let Route { name, subject } = route(parts.uri.path())?;
        let asked = Asked {
            method: parts.method,
            name,
            query: query(parts.uri.query().unwrap_or_default()),
            headers: parts.headers,
        };
        match subject {
            Subject::Registry => Ok(found(json!({}))),
            Subject::Catalog => {
                let all = self.shelf.repositories()?;
                Ok(found(json!({"repositories": page(all, &asked)})))
            }
            Subject::Tags => self.tags(&asked),
            Subject::Referrers(digest) => self.referrers(&asked, &digest),
            Subject::Blob(digest) => self.blob(&asked, &digest).await,
            Subject::Uploads => self.begin(&asked, body).await,
            Subject::Upload(id) => self.upload(&asked, &id, body).await,
            Subject::Manifest(reference) if writes(&asked.method) => {
                self.change_manifest(&asked, reference, body).await
            }
            Subject::Manifest(reference) => self.manifest(&asked, &reference),
        }
    }

    // Digests are compared, so that time tells nothing about the token.
    fn admit(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = &self.token else {
            return Ok(());
        };
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let (scheme, value) = given
            .and_then(|text| text.split_once(' '))
            .unwrap_or_default();
        let password = match scheme.to_ascii_lowercase().as_str() {
            "bearer" => value.to_owned(),
            "basic" => {
                let pair = STANDARD.decode(value).unwrap_or_default();
                let pair = String::from_utf8_lossy(&pair).into_owned();
                pair.split_once(':')
                    .map(|(_, p)| p.to_owned())
                    .unwrap_or_default()
            }
            _ => String::new(),
        };
        match digest_of(password.as_bytes()) == digest_of(token.as_bytes()) {
            true => Ok(()),
            false => Err(Refusal::new(
                Code::Unauthorized,
                "this registry wants its token, as the password of any user",
            )),
        }
    }

    fn tags(&self, asked: &Asked) -> Answer {
        if !self.shelf.exists(&asked.name) {
            let message = format!("no repository is called `{}`", asked.name);
            return Err(Refusal::new(Code::NameUnknown, message));
        }
        let all = self.shelf.tags(&asked.name)?;
        let shown = page(all.clone(), asked);
        let mut response = found(json!({"name": asked.name, "tags": shown}));
        let more = shown.last().filter(|last| Some(*last) != all.last());
        if let (Some(last), Some(n)) = (more, asked.value("n")) {
            let link = format!(
                "</v2/{}/tags/list?n={n}&last={last}>; rel=\"next\"",
                asked.name
            );
            put(&mut response, "link", &link);
        }
        Ok(response)
    }

    fn referrers(&self, asked: &Asked, subject: &Digest) -> Answer {
        let mut manifests = Vec::new();
        let wanted = asked.value("artifactType");
        for digest in self.shelf.referrers(&asked.name, subject)? {
            let Some((content, media_type)) = self.shelf.manifest(&asked.name, &digest) else {
                continue;
            };
            let described = describe(&digest, &content, &media_type);
            if wanted.is_none_or(|wanted| described["artifactType"] == wanted) {
                manifests.push(described);
            }
        }
        let value = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
        let mut response = found(value);
        put(&mut response, "content-type", INDEX);
        if wanted.is_some() {
            put(&mut response, "oci-filters-applied", "artifactType");
        }
        Ok(response)
    }

    async fn blob(&self, asked: &Asked, digest: &Digest) -> Answer {
        let unknown = || {
            Refusal::new(
                Code::BlobUnknown,
                format!("no blob {digest} in `{}`", asked.name),
            )
        };
        if asked.method == Method::DELETE {
            return match self.shelf.delete_blob(&asked.name, digest)? {
                true => Ok(status(StatusCode::ACCEPTED)),
                false => Err(unknown()),
            };
        }
        let path = self.shelf.blob(&asked.name, digest).ok_or_else(unknown)?;
        let mut file = tokio::fs::File::open(path).await?;
        let size = file.metadata().await?.len();
        let part = asked
            .header(header::RANGE)
            .and_then(|text| part(text, size));
        let (start, end) = part.unwrap_or((0, size));
        let mut response = status(if part.is_some() {
            StatusCode::PARTIAL_CONTENT
        } else {
            StatusCode::OK
        });
        for (key, value) in [
            ("content-length", (end - start).to_string()),
            ("content-type", "application/octet-stream".to_owned()),
            ("docker-content-digest", digest.to_string()),
            ("accept-ranges", "bytes".to_owned()),
        ] {
            put(&mut response, key, &value);
        }
        if part.is_some() {
            let last = end.saturating_sub(1);
            put(
                &mut response,
                "content-range",
                &format!("bytes {start}-{last}/{size}"),
            );
        }
        if asked.method != Method::HEAD {
            file.seek(std::io::SeekFrom::Start(start)).await?;
            *response.body_mut() = stream(file, end - start);
        }
        Ok(response)
    }

    async fn begin(&self, asked: &Asked, body: Incoming) -> Answer {
        if asked.method != Method::POST {
            return Err(unsupported(asked));
        }
        if let (Some(digest), Some(from)) = (asked.value("mount"), asked.value("from")) {
            let digest = Digest::parse(digest)?;
            if crate::route::is_name(from) && self.shelf.mount(&asked.name, from, &digest)? {
                return Ok(created(asked, "blobs", &digest));
            }
        }
        let id = uuid::Uuid::new_v4().to_string();
        self.shelf.begin_upload(&id)?;
        if asked.value("digest").is_some() {
            return self.finish(asked, &id, body).await;
        }
        Ok(under_way(asked, &id, 0, StatusCode::ACCEPTED))
    }

    async fn upload(&self, asked: &Asked, id: &str, body: Incoming) -> Answer {
        let file = self.shelf.upload(id);
        let Ok(there) = tokio::fs::metadata(&file).await else {
            return Err(Refusal::new(Code::BlobUploadUnknown, "no such upload"));
        };
        match asked.method {
            Method::GET | Method::HEAD => {
                Ok(under_way(asked, id, there.len(), StatusCode::NO_CONTENT))
            }
            Method::PATCH => {
                let length = self.take(asked, id, body).await?;
                Ok(under_way(asked, id, length, StatusCode::ACCEPTED))
            }
            Method::PUT => self.finish(asked, id, body).await,
            Method::DELETE => {
                tokio::fs::remove_file(&file).await?;
                Ok(status(StatusCode::NO_CONTENT))
            }
            _ => Err(unsupported(asked)),
        }
    }

    // Adds a piece to an upload, the one that comes next; how much there is then.
    async fn take(&self, asked: &Asked, id: &str, mut body: Incoming) -> Result<u64, Refusal> {
        let mut options = tokio::fs::OpenOptions::new();
        let mut file = options.append(true).open(self.shelf.upload(id)).await?;
        let there = file.metadata().await?.len();
        let range = asked.header(header::CONTENT_RANGE);
        let start = range.and_then(|text| {
            text.trim_start_matches("bytes ")
                .split('-')
                .next()?
                .parse()
                .ok()
        });
        if start.is_some_and(|start: u64| start != there) {
            let message = format!("{there} bytes are there; the next piece begins after them");
            return Err(Refusal::new(Code::BlobUploadInvalid, message));
        }
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| Refusal::new(Code::SizeInvalid, e.to_string()))?;
            if let Ok(data) = frame.into_data() {
                file.write_all(&data).await?;
            }
        }
        file.flush().await?;
        Ok(file.metadata().await?.len())
    }

    async fn finish(&self, asked: &Asked, id: &str, body: Incoming) -> Answer {
        let digest = Digest::parse(asked.value("digest").unwrap_or_default())?;
        self.take(asked, id, body).await?;
        match tokio::task::block_in_place(|| self.shelf.finish_upload(&asked.name, id, &digest))? {
            true => Ok(created(asked, "blobs", &digest)),
            false => Err(Refusal::new(
                Code::DigestInvalid,
                format!("what was sent is not {digest}"),
            )),
        }
    }

    fn find(&self, asked: &Asked, reference: &Reference) -> Option<Digest> {
        match reference {
            Reference::Digest(digest) => Some(digest.clone()),
            Reference::Tag(tag) => self.shelf.tag(&asked.name, tag),
        }
    }

    fn manifest(&self, asked: &Asked, reference: &Reference) -> Answer {
        let unknown = || {
            Refusal::new(
                Code::ManifestUnknown,
                format!("no such manifest in `{}`", asked.name),
            )
        };
        let digest = self.find(asked, reference).ok_or_else(unknown)?;
        let (content, media_type) = self
            .shelf
            .manifest(&asked.name, &digest)
            .ok_or_else(unknown)?;
        let mut response = status(StatusCode::OK);
        put(&mut response, "content-type", &media_type);
        put(&mut response, "content-length", &content.len().to_string());
        put(&mut response, "docker-content-digest", &digest.to_string());
        put(&mut response, "etag", &format!("\"{digest}\""));
        if asked.method != Method::HEAD {
            *response.body_mut() = whole(content);
        }
        Ok(response)
    }

    async fn change_manifest(&self, asked: &Asked, reference: Reference, body: Incoming) -> Answer {
        match asked.method {
            Method::PUT => self.put_manifest(asked, &reference, body).await,
            Method::DELETE => {
                let gone = match &reference {
                    Reference::Tag(tag) => self.shelf.delete_tag(&asked.name, tag)?,
                    Reference::Digest(digest) => self.shelf.delete_manifest(&asked.name, digest)?,
                };
                match gone {
                    true => Ok(status(StatusCode::ACCEPTED)),
                    false => Err(Refusal::new(Code::ManifestUnknown, "no such manifest")),
                }
            }
            _ => Err(unsupported(asked)),
        }
    }

    async fn put_manifest(&self, asked: &Asked, reference: &Reference, body: Incoming) -> Answer {
        let limited = Limited::new(body, MANIFEST_LIMIT).collect().await;
        let content = limited
            .map_err(|e| Refusal::new(Code::SizeInvalid, e.to_string()))?
            .to_bytes();
        let invalid = |message: &str| Refusal::new(Code::ManifestInvalid, message);
        let manifest: Value =
            serde_json::from_slice(&content).map_err(|e| invalid(&e.to_string()))?;
        let said = asked.header(header::CONTENT_TYPE).map(str::to_owned);
        let own = manifest["mediaType"].as_str().map(str::to_owned);
        let media_type = said
            .or(own)
            .ok_or_else(|| invalid("a manifest needs a media type"))?;
        self.check_parts(asked, &manifest)?;
        if let Reference::Digest(digest) = reference
            && digest_of(&content) != *digest
        {
            return Err(Refusal::new(
                Code::DigestInvalid,
                format!("what was sent is not {digest}"),
            ));
        }
        let subject = manifest["subject"]["digest"]
            .as_str()
            .map(Digest::parse)
            .transpose()?;
        let tag = match reference {
            Reference::Tag(tag) => Some(tag.as_str()),
            Reference::Digest(_) => None,
        };
        let kept =
            self.shelf
                .put_manifest(&asked.name, &content, &media_type, subject.as_ref(), tag);
        let digest = kept?;
        let mut response = created(asked, "manifests", &digest);
        if let Some(subject) = subject {
            put(&mut response, "oci-subject", &subject.to_string());
        }
        Ok(response)
    }

    // Whoever can read a manifest shall be able to read what it is made of.
    fn check_parts(&self, asked: &Asked, manifest: &Value) -> Result<(), Refusal> {
        let layers = manifest["layers"].as_array().into_iter().flatten();
        let blobs = layers.chain([&manifest["config"]]);
        for digest in blobs
            .filter(|part| part["urls"].is_null())
            .filter_map(|part| part["digest"].as_str())
        {
            if self
                .shelf
                .blob(&asked.name, &Digest::parse(digest)?)
                .is_none()
            {
                let message = format!(
                    "the manifest names {digest}, which is not in `{}`",
                    asked.name
                );
                return Err(Refusal::new(Code::ManifestBlobUnknown, message));
            }
        }
        for part in manifest["manifests"].as_array().into_iter().flatten() {
            let digest = Digest::parse(part["digest"].as_str().unwrap_or_default())?;
            if self.shelf.manifest(&asked.name, &digest).is_none() {
                let message = format!("the index names {digest}, which is not in `{}`", asked.name);
                return Err(Refusal::new(Code::ManifestBlobUnknown, message));
            }
        }
        Ok(())
    }
}

fn describe(digest: &Digest, content: &[u8], media_type: &str) -> Value {
    let manifest: Value = serde_json::from_slice(content).unwrap_or_default();
    let of_config = manifest["config"]["mediaType"].as_str();
    let kind = manifest["artifactType"].as_str().or(of_config);
    let mut described =
        json!({"mediaType": media_type, "digest": digest.to_string(), "size": content.len()});
    if let Some(kind) = kind {
        described["artifactType"] = json!(kind);
    }
    if !manifest["annotations"].is_null() {
        described["annotations"] = manifest["annotations"].clone();
    }
    described
}

/// What follows `last`, and at most `n`.
fn page(all: Vec<String>, asked: &Asked) -> Vec<String> {
    let last = asked.value("last").unwrap_or_default().to_owned();
    let most = asked
        .value("n")
        .and_then(|n| n.parse().ok())
        .unwrap_or(usize::MAX);
    all.into_iter()
        .filter(|item| *item > last)
        .take(most)
        .collect()
}

/// The bytes that a range asks for, from and up to; nothing when it is not one that is served in part.
fn part(text: &str, size: u64) -> Option<(u64, u64)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let start: u64 = first.parse().ok()?;
    let end = match last {
        "" => size,
        last => last.parse::<u64>().ok()?.saturating_add(1).min(size),
    };
    (start < end).then_some((start, end))
}

fn unsupported(asked: &Asked) -> Refusal {
    Refusal::new(
        Code::Unsupported,
        format!("{} is not done here", asked.method),
    )
}

fn stream(file: tokio::fs::File, length: u64) -> Body {
    let pieces = futures::stream::try_unfold((file, length), |(mut file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let mut piece = vec![0; most];
        let read = file.read(&mut piece).await?;
        piece.truncate(read);
        let left = if read == 0 { 0 } else { left - read as u64 };
        Ok::<_, std::io::Error>(Some((Bytes::from(piece), (file, left))))
    });
    StreamBody::new(pieces.map_ok(Frame::data)).boxed()
}

fn whole(content: impl Into<Bytes>) -> Body {
    Full::new(content.into())
        .map_err(|never| match never {})
        .boxed()
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(whole(Bytes::new()));
    *response.status_mut() = status;
    response
}

fn found(value: Value) -> Response<Body> {
    let mut response = Response::new(whole(value.to_string()));
    put(&mut response, "content-type", "application/json");
    response
}

fn refused(refusal: &Refusal) -> Response<Body> {
    let mut response = found(refusal.to_json());
    *response.status_mut() = refusal.status();
    if refusal.code == Code::Unauthorized {
        put(&mut response, "www-authenticate", "Basic realm=\"kyanite\"");
    }
    response
}

fn created(asked: &Asked, kind: &str, digest: &Digest) -> Response<Body> {
    let mut response = status(StatusCode::CREATED);
    put(
        &mut response,
        "location",
        &format!("/v2/{}/{kind}/{digest}", asked.name),
    );
    put(&mut response, "docker-content-digest", &digest.to_string());
    response
}

fn under_way(asked: &Asked, id: &str, length: u64, code: StatusCode) -> Response<Body> {
    let mut response = status(code);
    put(
        &mut response,
        "location",
        &format!("/v2/{}/blobs/uploads/{id}", asked.name),
    );
    put(
        &mut response,
        "range",
        &format!("0-{}", length.saturating_sub(1)),
    );
    put(&mut response, "docker-upload-uuid", id);
    response
}

fn put(response: &mut Response<Body>, key: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_blobs_are_those_inside() {
        for (text, expected) in [
            ("bytes=0-99", Some((0, 10))),
            ("bytes=3-5", Some((3, 6))),
            ("bytes=4-", Some((4, 10))),
            ("bytes=10-", None),
            ("bytes=-5", None),
            ("lines=1-2", None),
        ] {
            assert_eq!(part(text, 10), expected, "{text}");
        }
    }
}
