//! Microsoft.Resources: what is no resource group and no deployment; and the graph of all resources.

use super::{Provider, Route, get, post, put};
use crate::arm::kind::{Goes, Kind, PLAIN};
use crate::arm::{deployment, query};

pub(super) const PROVIDER: Provider = Provider {
    namespace: "Microsoft.Resources",
    versions: &["2024-11-01", "2021-04-01"],
    kinds: &[&[Kind {
        name: "Microsoft.Resources/deployments",
        has_location: false,
        delete: Goes::Location,
        milliseconds: 100,
        finish: Some(deployment::finish),
        longest: 64,
        ..PLAIN
    }]],
    routes: ROUTES,
    more: &["resourceGroups", "subscriptions", "tags", "locations"],
};

const ROUTES: &[Route] = &[
    put("deployments/{}", deployment::put),
    post("deployments/{}/validate", deployment::validate),
    post("deployments/{}/whatIf", deployment::what_if),
    post("deployments/{}/cancel", deployment::cancel),
    post("deployments/{}/exportTemplate", deployment::export),
    get("deployments/{}/operations", deployment::operations),
];

pub(super) const GRAPH: Provider = Provider {
    namespace: "Microsoft.ResourceGraph",
    versions: &["2022-10-01"],
    kinds: &[],
    routes: &[post("resources", query::answer)],
    more: &["resources"],
};
