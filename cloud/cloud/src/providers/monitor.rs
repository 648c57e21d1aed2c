//! Microsoft.Insights, Microsoft.OperationalInsights and Microsoft.HybridCompute: what clusters and machines touch of them.

use serde_json::json;

use super::{Call, Provider, get, post};
use crate::arm::activity;
use crate::arm::fault::Fault;
use crate::arm::kind::{At, Draft, Kind, PLAIN};
use crate::exchange::Reply;
use crate::turn::Turn;

pub(super) const INSIGHTS: Provider = Provider {
    namespace: "Microsoft.Insights",
    versions: &["2022-06-01", "2015-04-01"],
    kinds: &[&[
        Kind {
            name: "Microsoft.Insights/dataCollectionRules",
            put: (200, 200),
            decide: Some(immutable_id),
            ..PLAIN
        },
        Kind {
            name: "Microsoft.Insights/dataCollectionEndpoints",
            put: (200, 200),
            decide: Some(immutable_id),
            ..PLAIN
        },
        Kind {
            name: "Microsoft.Insights/dataCollectionRuleAssociations",
            put: (200, 200),
            at: At::Anywhere,
            has_location: false,
            ..PLAIN
        },
        Kind {
            name: "Microsoft.Insights/diagnosticSettings",
            at: At::Anywhere,
            has_location: false,
            put: (200, 200),
            ..PLAIN
        },
    ]],
    routes: &[get("eventtypes/management/values", events)],
    more: &["eventtypes", "metrics"],
};

pub(super) const OPERATIONAL_INSIGHTS: Provider = Provider {
    namespace: "Microsoft.OperationalInsights",
    versions: &["2023-09-01", "2015-11-01-preview"],
    kinds: &[&[Kind {
        name: "Microsoft.OperationalInsights/workspaces",
        defaults: r#"{"properties":{"sku":{"name":"pergb2018"},"retentionInDays":30,"workspaceCapping":{"dailyQuotaGb":-1.0},
            "publicNetworkAccessForIngestion":"Enabled","publicNetworkAccessForQuery":"Enabled"}}"#,
        read_only: &["/properties/customerId"],
        decide: Some(customer_id),
        ..PLAIN
    }]],
    routes: &[post("workspaces/{}/sharedKeys", shared_keys)],
    more: &[],
};

pub(super) const HYBRID_COMPUTE: Provider = Provider {
    namespace: "Microsoft.HybridCompute",
    versions: &["2024-07-10", "2026-06-16-preview"],
    kinds: &[&[
        Kind {
            name: "Microsoft.HybridCompute/machines",
            put: (200, 200),
            defaults: r#"{"properties":{"status":"Connected","agentVersion":"1.50","osName":"linux"}}"#,
            read_only: &["/properties/vmId"],
            decide: Some(connected_machine),
            ..PLAIN
        },
        Kind {
            name: "Microsoft.HybridCompute/machines/extensions",
            ..PLAIN
        },
    ]],
    routes: &[],
    more: &[],
};

fn events(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let filter = call.asked.param("$filter").unwrap_or_default();
    Ok(Reply::list(activity::events(
        turn,
        call.subscription(),
        filter,
    )))
}

/// Gives a field a new value unless the resource has one already.
fn lasting(draft: &mut Draft<'_>, field: &str, new: impl FnOnce() -> String) {
    let own = draft.was(&format!("/properties/{field}"));
    draft.properties()[field] = if own.is_null() { json!(new()) } else { own };
}

fn immutable_id(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    lasting(draft, "immutableId", || {
        format!("dcr-{}", turn.chance.hex(32))
    });
    Ok(())
}

fn customer_id(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    lasting(draft, "customerId", || turn.chance.guid());
    Ok(())
}

fn connected_machine(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    lasting(draft, "vmId", || turn.chance.guid());
    super::identity::assign(turn, draft)
}

fn shared_keys(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let id = call.target().to_string();
    let key = |n: u8| crate::entra::directory::digest(&format!("{id}{n}{}", turn.settings.tenant));
    Ok(Reply::ok(
        json!({"primarySharedKey": key(1), "secondarySharedKey": key(2)}),
    ))
}
