//! Microsoft.ContainerService: managed clusters, their pools, and what a cluster puts into its group of nodes.
//!
//! The scale sets, balancers and addresses of a cluster's nodes are resources of ours, made by [`nodes::sync`]
//! whenever an operation on the cluster comes to that. Whether a control plane and machines stand behind them is the
//! region's affair.

mod actions;
mod adopted;
mod cluster;
mod nodes;
mod pools;
mod principal;
mod releases;

pub use adopted::Adopted;
pub(crate) use adopted::adopt;
pub(crate) use nodes::wanted as machines;
pub(crate) use principal::cloud_config;

use super::{Provider, Route, get, post};
use crate::arm::document::Document;
use crate::arm::kind::{Goes, Kind, PLAIN, Tag};
use crate::turn::Turn;

const OWN: Kind = Kind {
    flat_errors: true,
    operations: ("operations", "operationresults"),
    longest: 63,
    ..PLAIN
};

/// A child of a cluster that nothing has to be done for.
const CHILD: Kind = Kind {
    has_location: false,
    ..OWN
};

pub(super) const PROVIDER: Provider = Provider {
    namespace: "Microsoft.ContainerService",
    versions: &[
        "2026-06-01",
        "2026-05-02-preview",
        "2026-04-01",
        "2025-10-01",
    ],
    kinds: &[KINDS],
    routes: ROUTES,
    more: &[
        "locations",
        "locations/kubernetesVersions",
        "locations/operations",
        "locations/operationresults",
        "operations",
    ],
};

const KINDS: &[Kind] = &[
    Kind {
        name: "Microsoft.ContainerService/managedClusters",
        write: Goes::Async,
        delete: Goes::Both,
        tag: Tag::Upper,
        milliseconds: 1500,
        sparse: true,
        defaults: cluster::DEFAULTS,
        read_only: &[
            "/properties/powerState",
            "/properties/fqdn",
            "/properties/azurePortalFQDN",
            "/properties/privateFQDN",
            "/properties/currentKubernetesVersion",
            "/properties/maxAgentPools",
            "/properties/resourceUID",
            "/properties/identityProfile",
            "/properties/status",
            "/systemData",
        ],
        references: &[
            "identity/userAssignedIdentities/{}",
            "properties/agentPoolProfiles/[]/vnetSubnetID",
        ],
        decide: Some(cluster::decide),
        finish: Some(cluster::finish),
        settled: Some(cluster::settled),
        leave: Some(cluster::leave),
        ..OWN
    },
    Kind {
        name: "Microsoft.ContainerService/managedClusters/agentPools",
        within: Some("agentPoolProfiles"),
        flat: true,
        write: Goes::Async,
        delete: Goes::Both,
        tag: Tag::Upper,
        defaults: pools::DEFAULTS,
        read_only: &[
            "/currentOrchestratorVersion",
            "/nodeImageVersion",
            "/provisioningState",
        ],
        has_location: false,
        ..OWN
    },
    Kind {
        name: "Microsoft.ContainerService/managedClusters/maintenanceConfigurations",
        ..CHILD
    },
    Kind {
        name: "Microsoft.ContainerService/managedClusters/trustedAccessRoleBindings",
        ..CHILD
    },
    Kind {
        name: "Microsoft.ContainerService/managedClusters/managedNamespaces",
        ..CHILD
    },
    Kind {
        name: "Microsoft.ContainerService/managedClusters/identityBindings",
        ..CHILD
    },
    Kind {
        name: "Microsoft.ContainerService/managedClusters/privateEndpointConnections",
        ..CHILD
    },
    Kind {
        name: "Microsoft.ContainerService/snapshots",
        ..OWN
    },
];

const ROUTES: &[Route] = &[
    get("locations/{}/kubernetesVersions", releases::versions),
    get("locations/{}/nodeImageVersions", releases::node_images),
    get("locations/{}/trustedAccessRoles", actions::nothing),
    get("locations/{}/meshRevisionProfiles", actions::nothing),
    get(
        "managedClusters/{}/upgradeProfiles/default",
        actions::upgrades,
    ),
    get(
        "managedClusters/{}/availableAgentPoolVersions/default",
        actions::pool_versions,
    ),
    get(
        "managedClusters/{}/availableAgentPoolVersions",
        actions::pool_versions,
    ),
    get(
        "managedClusters/{}/agentPools/{}/upgradeProfiles/default",
        actions::pool_upgrades,
    ),
    post(
        "managedClusters/{}/listClusterUserCredential",
        actions::user_credential,
    ),
    post(
        "managedClusters/{}/listClusterAdminCredential",
        actions::admin_credential,
    ),
    post(
        "managedClusters/{}/listClusterMonitoringUserCredential",
        actions::user_credential,
    ),
    post("managedClusters/{}/stop", actions::stop),
    post("managedClusters/{}/start", actions::start),
    post("managedClusters/{}/abort", actions::abort),
    post("managedClusters/{}/agentPools/{}/abort", actions::abort),
    post(
        "managedClusters/{}/rotateClusterCertificates",
        actions::rotate,
    ),
    post(
        "managedClusters/{}/rotateServiceAccountSigningKeys",
        actions::rotate,
    ),
    post(
        "managedClusters/{}/resetServicePrincipalProfile",
        actions::reset,
    ),
    post("managedClusters/{}/resetAADProfile", actions::reset),
    post("managedClusters/{}/runCommand", actions::run_command),
    get(
        "managedClusters/{}/commandResults/{}",
        actions::command_result,
    ),
    post(
        "managedClusters/{}/agentPools/{}/upgradeNodeImageVersion",
        actions::upgrade_image,
    ),
    post(
        "managedClusters/{}/agentPools/{}/deleteMachines",
        actions::delete_machines,
    ),
    get(
        "managedClusters/{}/agentPools/{}/machines",
        actions::machines,
    ),
    get(
        "managedClusters/{}/agentPools/{}/machines/{}",
        actions::machine,
    ),
];

/// A cluster's group of nodes goes with it.
pub(super) fn removed(turn: &mut Turn<'_>, kind: &Kind, document: &Document) {
    if kind.collection() == "managedClusters" {
        nodes::clear(turn, document);
        principal::remove(turn, document);
    }
}
