// Azure's management SDK for Go against a cloud of ours: the credential chain, creation, long operations, preconditions,
// paging, errors. Prints one JSON object with what was seen; whoever runs it looks at that.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v6"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
)

var seen = map[string]any{}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The code and status of what Azure refused.
func refusal(err error) *azcore.ResponseError {
	var refused *azcore.ResponseError
	if !errors.As(err, &refused) {
		check(fmt.Errorf("not a refusal: %w", err))
	}
	return refused
}

func place() policy.ClientOptions {
	origin := os.Getenv("ORIGIN")
	manager := cloud.ServiceConfiguration{Endpoint: origin, Audience: origin}
	services := map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: manager}
	return policy.ClientOptions{Cloud: cloud.Configuration{ActiveDirectoryAuthorityHost: origin, Services: services}}
}

func identify() azcore.TokenCredential {
	tenant, id := os.Getenv("AZURE_TENANT_ID"), os.Getenv("AZURE_CLIENT_ID")
	options := &azidentity.ClientSecretCredentialOptions{ClientOptions: place(), DisableInstanceDiscovery: true}
	wrong := must(azidentity.NewClientSecretCredential(tenant, id, "wrong", options))
	_, err := wrong.GetToken(context.Background(), policy.TokenRequestOptions{Scopes: []string{os.Getenv("ORIGIN") + "/.default"}})
	seen["wrong"] = err != nil && strings.Contains(err.Error(), "AADSTS7000215")
	chain := &azidentity.DefaultAzureCredentialOptions{ClientOptions: place(), DisableInstanceDiscovery: true}
	return must(azidentity.NewDefaultAzureCredential(chain))
}

func wait[T any](ctx context.Context, poller *runtime.Poller[T], err error) T {
	check(err)
	return must(poller.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second}))
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	options := &arm.ClientOptions{ClientOptions: place(), DisableRPRegistration: true}
	subscription, credential := os.Getenv("AZURE_SUBSCRIPTION_ID"), identify()
	groups := must(armresources.NewResourceGroupsClient(subscription, credential, options))
	factory := must(armcontainerservice.NewClientFactory(subscription, credential, options))
	clusters, pools := factory.NewManagedClustersClient(), factory.NewAgentPoolsClient()
	east := armresources.ResourceGroup{Location: to.Ptr("eastus")}

	// A group is made at once; what is not there is told with its code.
	made := must(groups.CreateOrUpdate(ctx, "g", east, nil))
	seen["group"] = *made.Properties.ProvisioningState
	_, err := groups.Get(ctx, "nobody", nil)
	seen["missing"] = refusal(err).ErrorCode

	// A long operation ends with the resource as it is then.
	cluster := armcontainerservice.ManagedCluster{
		Location: to.Ptr("eastus"),
		Identity: &armcontainerservice.ManagedClusterIdentity{Type: to.Ptr(armcontainerservice.ResourceIdentityTypeSystemAssigned)},
		Properties: &armcontainerservice.ManagedClusterProperties{
			DNSPrefix: to.Ptr("c"),
			AgentPoolProfiles: []*armcontainerservice.ManagedClusterAgentPoolProfile{{
				Name: to.Ptr("p"), Count: to.Ptr[int32](1), VMSize: to.Ptr("Standard_D2s_v5"), Mode: to.Ptr(armcontainerservice.AgentPoolModeSystem),
			}},
		},
	}
	begun, err := clusters.BeginCreateOrUpdate(ctx, "g", "c", cluster, nil)
	seen["cluster"] = *wait(ctx, begun, err).Properties.ProvisioningState

	// Two writers with one tag: the second is refused.
	pool := must(pools.Get(ctx, "g", "c", "p", nil)).AgentPool
	tag := pool.Properties.ETag
	match := &armcontainerservice.AgentPoolsClientBeginCreateOrUpdateOptions{IfMatch: tag}
	pool.Properties.Count = to.Ptr[int32](2)
	change, err := pools.BeginCreateOrUpdate(ctx, "g", "c", "p", pool, match)
	wait(ctx, change, err)
	_, err = pools.BeginCreateOrUpdate(ctx, "g", "c", "p", pool, match)
	seen["second"] = refusal(err).StatusCode

	// Pages are followed to their end.
	for number := range 5 {
		must(groups.CreateOrUpdate(ctx, fmt.Sprintf("page-%d", number), east, nil))
	}
	pages, count := 0, 0
	for pager := groups.NewListPager(&armresources.ResourceGroupsClientListOptions{Top: to.Ptr[int32](2)}); pager.More(); pages++ {
		count += len(must(pager.NextPage(ctx)).Value)
	}
	seen["pages"], seen["groups"] = pages, count

	// What Azure refuses is refused with its status.
	_, err = clusters.BeginCreateOrUpdate(ctx, "g", "Bad name!", cluster, nil)
	seen["refused"] = refusal(err).StatusCode

	for _, name := range []string{"g", "page-0", "page-1", "page-2", "page-3", "page-4"} {
		gone, err := groups.BeginDelete(ctx, name, nil)
		wait(ctx, gone, err)
	}
	seen["left"] = len(must(groups.NewListPager(nil).NextPage(ctx)).Value)
	check(json.NewEncoder(os.Stdout).Encode(seen))
}
