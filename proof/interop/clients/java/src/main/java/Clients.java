import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.Watch;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderCallbacks;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderElectionConfigBuilder;
import io.fabric8.kubernetes.client.extended.leaderelection.resourcelock.LeaseLock;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** List, watch, informer, patch and leader election with fabric8; ends with 0 when each of them works. */
public final class Clients {
  private static final String NAMESPACE = "default";

  public static void main(String[] arguments) throws Exception {
    try (KubernetesClient client = new KubernetesClientBuilder().build()) {
      list(client);
      watch(client);
      informer(client);
      patch(client);
      leaderElection(client);
    }
    System.out.println("every step passed");
    System.exit(0);
  }

  private static ConfigMap configMap(String name) {
    return new ConfigMapBuilder().withNewMetadata().withName(name).endMetadata().withData(Map.of("a", "1")).build();
  }

  private static void list(KubernetesClient client) {
    client.configMaps().inNamespace(NAMESPACE).resource(configMap("java-list")).create();
    boolean found = client.configMaps().inNamespace(NAMESPACE).list().getItems().stream()
        .anyMatch(map -> map.getMetadata().getName().equals("java-list"));
    check("list", found);
  }

  private static void watch(KubernetesClient client) throws Exception {
    CountDownLatch seen = new CountDownLatch(1);
    Watcher<ConfigMap> watcher = new Watcher<>() {
      @Override
      public void eventReceived(Action action, ConfigMap map) {
        if (action == Action.ADDED && map.getMetadata().getName().equals("java-watch")) {
          seen.countDown();
        }
      }

      @Override
      public void onClose(WatcherException cause) {
      }
    };
    try (Watch watch = client.configMaps().inNamespace(NAMESPACE).watch(watcher)) {
      client.configMaps().inNamespace(NAMESPACE).resource(configMap("java-watch")).create();
      check("watch", seen.await(20, TimeUnit.SECONDS));
    }
  }

  private static void informer(KubernetesClient client) throws Exception {
    try (SharedIndexInformer<ConfigMap> informer = client.configMaps().inNamespace(NAMESPACE).inform()) {
      check("informer has the present", informer.getStore().getByKey(NAMESPACE + "/java-list") != null);
      client.configMaps().inNamespace(NAMESPACE).resource(configMap("java-informer")).create();
      check("informer follows", within(20, () -> informer.getStore().getByKey(NAMESPACE + "/java-informer") != null));
    }
  }

  private static void patch(KubernetesClient client) {
    ConfigMap merged = client.configMaps().inNamespace(NAMESPACE).withName("java-list")
        .patch(PatchContext.of(PatchType.JSON_MERGE), "{\"data\":{\"b\":\"2\"}}");
    check("merge patch", "2".equals(merged.getData().get("b")) && "1".equals(merged.getData().get("a")));
    ConfigMap applied = client.configMaps().inNamespace(NAMESPACE).resource(configMap("java-apply")).serverSideApply();
    check("apply", "1".equals(applied.getData().get("a")));
  }

  private static void leaderElection(KubernetesClient client) throws Exception {
    CompletableFuture<Void> leads = new CompletableFuture<>();
    CompletableFuture<Void> ended = new CompletableFuture<>();
    var callbacks = new LeaderCallbacks(() -> leads.complete(null), () -> ended.complete(null), identity -> { });
    var config = new LeaderElectionConfigBuilder().withName("java").withLock(new LeaseLock(NAMESPACE, "java", "one"))
        .withLeaseDuration(Duration.ofSeconds(15)).withRenewDeadline(Duration.ofSeconds(10))
        .withRetryPeriod(Duration.ofSeconds(2)).withReleaseOnCancel(true).withLeaderCallbacks(callbacks).build();
    CompletableFuture<?> election = client.leaderElector().withConfig(config).build().start();
    leads.get(20, TimeUnit.SECONDS);
    String holder = client.leases().inNamespace(NAMESPACE).withName("java").get().getSpec().getHolderIdentity();
    check("leader election", "one".equals(holder));
    election.cancel(true);
    ended.get(20, TimeUnit.SECONDS);
  }

  private interface Condition {
    boolean holds() throws Exception;
  }

  private static boolean within(int seconds, Condition condition) throws Exception {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
    while (System.nanoTime() < end) {
      if (condition.holds()) {
        return true;
      }
      Thread.sleep(50);
    }
    return false;
  }

  private static void check(String what, boolean holds) {
    if (!holds) {
      System.err.println("failed: " + what);
      System.exit(1);
    }
    System.out.println("passed: " + what);
  }

  private Clients() {
  }
}
