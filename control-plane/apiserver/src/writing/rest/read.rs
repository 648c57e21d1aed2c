//! get, list, watch.

use http::StatusCode;

use crate::api::Api;
use crate::call::{Call, Reply};
use crate::door::request::ListOptions;
use crate::reading::list;
use crate::reading::select::Selection;
use crate::reading::watch;
use crate::status::{ApiError, Result};

impl Api {
    pub(super) async fn get(&self, call: &Call) -> Result<Reply> {
        let view = call.view()?;
        if call.query.flag("export") {
            return Err(ApiError::bad_request(
                "the export parameter, deprecated since v1.14, is no longer supported",
            ));
        }
        if let Some(text) = call.query.get("resourceVersion") {
            let revision: u64 = text.parse().map_err(|_| {
                ApiError::plain(format!(
                    "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
                ))
            })?;
            self.cache.reach(revision).await?;
        }
        let stored = self
            .must_fetch(&call.resource, call.namespace(), call.path.name())
            .await?;
        let body = self.shown(&view, &stored).await?;
        Ok(Reply::new(StatusCode::OK, &view, body))
    }

    pub(super) async fn list(&self, call: &Call) -> Result<Reply> {
        let view = call.view()?;
        let options = ListOptions::parse(&call.query, false)?;
        let selection = Selection::parse(&call.resource, call.namespace(), None, &options)?;
        let collection = self.collection(&call.resource)?;
        let page = list::list(self, &collection, &selection, &options).await?;
        Ok(Reply::new(
            StatusCode::OK,
            &view,
            view.list(page.items, &page.meta),
        ))
    }

    pub(super) async fn watch(&self, call: &Call) -> Result<Reply> {
        let view = call.view()?;
        if view.accepted.format == crate::reading::negotiate::Format::Yaml {
            return Err(ApiError::not_acceptable(
                "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch",
            ));
        }
        let options = ListOptions::parse(&call.query, true)?;
        let selection = Selection::parse(
            &call.resource,
            call.namespace(),
            call.path.name.as_deref(),
            &options,
        )?;
        match (options.resource_version, options.send_initial_events) {
            (None, _) => self.cache.reach(self.store.revision().await?).await?,
            (Some(revision), Some(true)) => self.cache.reach(revision).await?,
            _ => {}
        }
        let api = self.this.upgrade();
        let source = watch::Source {
            api: api.ok_or_else(|| ApiError::unavailable("the server is stopping"))?,
            collection: self.collection(&call.resource)?,
            shutdown: self.shutdown.clone(),
            meter: self.meters.watch(&call.resource),
        };
        let body = watch::start(source, view.clone(), selection, &options)?;
        let mut reply = Reply::new(StatusCode::OK, &view, body);
        if view.accepted.format == crate::reading::negotiate::Format::Protobuf {
            reply.content_type = "application/vnd.kubernetes.protobuf;stream=watch";
        }
        Ok(reply)
    }
}
