//! The resources that are served now: those of the table, and those that definitions have brought.
//!
//! A request works on the state it found when it came. Definitions make a new state, which takes the place
//! of the old one as a whole; its documents are made when somebody asks for them.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use kinds::resources::{self, Resource};

use crate::outward::aggregation::discovery::RemoteVersion;
use crate::outward::aggregation::openapi::Described;
use crate::pages::discovery::Discovery;
use crate::pages::published::Published;

type Place = (&'static str, &'static str, &'static str);

/// The resources that are served, whatever comes and goes.
#[derive(Debug)]
pub(crate) struct Registry {
    live: RwLock<Arc<Live>>,
}

/// The resources that are served at one moment.
#[derive(Debug)]
pub(crate) struct Live {
    resources: Vec<Arc<Resource>>,
    remotes: Vec<RemoteVersion>,
    places: HashMap<Place, Arc<Resource>>,
    address: String,
    discovery: OnceLock<Discovery>,
    published: OnceLock<Published>,
}

impl Registry {
    /// The built-in resources, of a server that clients reach at an address.
    pub(crate) fn new(address: String) -> Registry {
        Registry {
            live: RwLock::new(Arc::new(Live::new(address, Vec::new(), Vec::new(), None))),
        }
    }

    /// What is served now.
    pub(crate) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves these custom resources from now on, and no others.
    pub(crate) fn serve(&self, custom: Vec<Arc<Resource>>) {
        self.change(|before| (custom, before.remotes.clone()));
    }

    /// Tells of these servers behind this one from now on, and of no others.
    pub(crate) fn aggregate(&self, remotes: Vec<RemoteVersion>) {
        self.change(|before| {
            let custom = before.resources.iter().filter(|r| r.ty.defined().is_some());
            (custom.cloned().collect(), remotes)
        });
    }

    fn change(&self, next: impl FnOnce(&Live) -> (Vec<Arc<Resource>>, Vec<RemoteVersion>)) {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let (custom, remotes) = next(&live);
        let next = Live::new(live.address.clone(), custom, remotes, Some(&**live));
        *live = Arc::new(next);
    }
}

impl Live {
    fn new(
        address: String,
        custom: Vec<Arc<Resource>>,
        remotes: Vec<RemoteVersion>,
        before: Option<&Live>,
    ) -> Live {
        let mut resources = resources::all().to_vec();
        // What the table serves is not for definitions to take.
        resources.extend(custom);
        let mut places = HashMap::with_capacity(resources.len());
        for resource in &resources {
            let place = (resource.gv.group, resource.gv.version, resource.plural);
            places.entry(place).or_insert_with(|| Arc::clone(resource));
        }
        let published = OnceLock::new();
        if let Some(known) = before.and_then(|b| b.published.get()) {
            let _ = published.set(known.renewed(&resources, described(&remotes)));
        }
        Live {
            resources,
            remotes,
            places,
            address,
            discovery: OnceLock::new(),
            published,
        }
    }

    /// Every resource: the built-in ones in the table's order, then the others.
    pub(crate) fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// The resource at this place.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.places.get(&(group, version, plural)).cloned()
    }

    /// Whether anything of a group is served.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.resources.iter().any(|r| r.gv.group == group)
    }

    /// The discovery documents.
    pub(crate) fn discovery(&self) -> &Discovery {
        self.discovery
            .get_or_init(|| Discovery::new(&self.address, &self.resources, &self.remotes))
    }

    /// The body of `/openapi/v3`; documents of other servers are found at those.
    pub(crate) fn openapi_index(&self) -> String {
        let own = self.published().index();
        if self.remotes.is_empty() {
            return own.to_owned();
        }
        let mut index: serde_json::Value = serde_json::from_str(own).unwrap_or_default();
        for remote in self.remotes.iter().filter(|remote| remote.fresh) {
            let place = format!("apis/{}/{}", remote.group, remote.version);
            let address = format!("/openapi/v3/{place}");
            index["paths"][place] = serde_json::json!({"serverRelativeURL": address});
        }
        index.to_string()
    }

    /// The OpenAPI documents of what definitions have brought.
    pub(crate) fn published(&self) -> &Published {
        self.published
            .get_or_init(|| Published::new(&self.resources, described(&self.remotes)))
    }
}

fn described(remotes: &[RemoteVersion]) -> Vec<Arc<Described>> {
    let all = remotes.iter().filter_map(|remote| remote.described.clone());
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_request_found_stays_while_others_come_and_go() {
        let registry = Registry::new("127.0.0.1:6443".into());
        let before = registry.live();
        let pods = resources::find("", "v1", "pods").expect("in the table");
        let mut widgets = Resource {
            gv: resources::GroupVersion {
                group: resources::intern("example.com"),
                version: "v1",
            },
            plural: "widgets",
            singular: "widget",
            kind: "Widget",
            list_kind: "WidgetList",
            namespaced: true,
            verbs: Vec::new(),
            short_names: Vec::new(),
            categories: Vec::new(),
            stored: pods.gv,
            hashed: pods.gv,
            is_virtual: false,
            subresources: Vec::new(),
            ty: pods.ty.clone(),
        };
        widgets.stored = widgets.gv;
        registry.serve(vec![Arc::new(widgets)]);
        assert!(before.find("example.com", "v1", "widgets").is_none());
        let after = registry.live();
        assert!(after.find("example.com", "v1", "widgets").is_some());
        assert!(after.discovery().document("/apis/example.com/v1").is_some());
        registry.serve(Vec::new());
        assert!(!registry.live().has_group("example.com"));
        assert!(registry.live().find("", "v1", "pods").is_some());
    }
}
