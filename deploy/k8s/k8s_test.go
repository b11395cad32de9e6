// Package k8s has the manifests of a deployment in Kubernetes, and what holds them to what they promise.
package k8s

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of this folder.
type manifests struct {
	files      []string
	deployment *appsv1.Deployment
	service    *corev1.Service
	rules      *corev1.ConfigMap
	budget     *policyv1.PodDisruptionBudget
	network    *networkingv1.NetworkPolicy
}

// decode reads one object strictly: a field that Kubernetes does not know, or that is there twice, is an error.
func decode(data []byte) (runtime.Object, error) {
	object, _, err := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer().Decode(data, nil, nil)
	return object, err
}

func read(t *testing.T) manifests {
	t.Helper()
	paths, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var m manifests
	for _, path := range paths {
		if path == "kustomization.yaml" {
			continue
		}
		m.files = append(m.files, path)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		object, err := decode(data)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		switch o := object.(type) {
		case *appsv1.Deployment:
			m.deployment = o
		case *corev1.Service:
			m.service = o
		case *corev1.ConfigMap:
			m.rules = o
		case *policyv1.PodDisruptionBudget:
			m.budget = o
		case *networkingv1.NetworkPolicy:
			m.network = o
		default:
			t.Fatalf("%s: got a %T, which no test looks at", path, object)
		}
	}
	if m.deployment == nil || m.service == nil || m.rules == nil || m.budget == nil || m.network == nil {
		t.Fatalf("got %v, want a Deployment, a Service, a ConfigMap, a PodDisruptionBudget and a NetworkPolicy", m.files)
	}
	return m
}

// The decoder is as strict as it says.
func TestDecodeIsStrict(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"apiVersion: v1\nkind: Service\nspec: {selektor: {a: b}}\n",
		"apiVersion: v1\nkind: Service\nspec: {type: NodePort, type: ClusterIP}\n",
		"apiVersion: v2\nkind: Service\n",
	} {
		if _, err := decode([]byte(bad)); err == nil {
			t.Errorf("got no error for %q", bad)
		}
	}
}

func TestKustomization(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var k struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Resources  []string `json:"resources"`
		Images     []struct {
			Name    string `json:"name"`
			NewName string `json:"newName"`
			NewTag  string `json:"newTag"`
		} `json:"images"`
	}
	if err := yaml.UnmarshalStrict(data, &k); err != nil {
		t.Fatal(err)
	}
	m := read(t)
	if !slices.Equal(k.Resources, m.files) {
		t.Errorf("got resources %v, want %v", k.Resources, m.files)
	}
	if len(k.Images) != 1 || k.Images[0].Name != m.deployment.Spec.Template.Spec.Containers[0].Image {
		t.Errorf("got images %v, want that of the Deployment", k.Images)
	}
}

// evaluate returns why a pod is refused by the restricted standard, "" if it is not.
func evaluate(t *testing.T, template corev1.PodTemplateSpec) string {
	t.Helper()
	e, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	results := e.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &template.ObjectMeta, &template.Spec)
	if sum := policy.AggregateCheckResults(results); !sum.Allowed {
		return sum.ForbiddenDetail()
	}
	return ""
}

func TestPodIsRestricted(t *testing.T) {
	t.Parallel()
	m := read(t)
	if why := evaluate(t, m.deployment.Spec.Template); why != "" {
		t.Error(why)
	}
	// Each of its settings is needed.
	for name, loosen := range map[string]func(*corev1.PodSpec){
		"root":         func(p *corev1.PodSpec) { p.SecurityContext.RunAsUser = new(int64) },
		"maybe root":   func(p *corev1.PodSpec) { p.SecurityContext.RunAsNonRoot = nil },
		"system calls": func(p *corev1.PodSpec) { p.SecurityContext.SeccompProfile = nil },
		"privileges":   func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil },
		"capabilities": func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.Capabilities = nil },
		"the host's disk": func(p *corev1.PodSpec) {
			p.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
		},
	} {
		template := m.deployment.Spec.Template.DeepCopy()
		loosen(&template.Spec)
		if evaluate(t, *template) == "" {
			t.Errorf("%s: got it allowed, so the check above says nothing", name)
		}
	}
}

func TestPod(t *testing.T) {
	t.Parallel()
	m := read(t)
	pod, c := m.deployment.Spec.Template.Spec, m.deployment.Spec.Template.Spec.Containers[0]
	if *m.deployment.Spec.Replicas < 2 {
		t.Errorf("got %d replicas, want 2 or more", *m.deployment.Spec.Replicas)
	}
	if !*c.SecurityContext.ReadOnlyRootFilesystem {
		t.Error("got a root filesystem that can be written to")
	}
	if *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks {
		t.Error("got a token of the API server or variables of Services, want neither")
	}
	// serve's defaults; a flag that changes one of them has to be read here.
	for _, arg := range c.Args {
		if strings.HasPrefix(arg, "--drain-delay") || strings.HasPrefix(arg, "--stop-timeout") {
			t.Fatalf("%s: the grace period is compared to the default", arg)
		}
	}
	const stop = 12*time.Second + 10*time.Second
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace < stop+5*time.Second {
		t.Errorf("got a grace period of %v, want 5 s more than drain delay and stop timeout, %v", grace, stop)
	}
	if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
		t.Error("want requests of CPU and memory, and a limit of memory")
	}
	if !c.Resources.Limits.Cpu().IsZero() {
		t.Error("got a limit of CPU, which makes answers late")
	}
	for name, p := range map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe} {
		if p == nil || p.GRPC == nil || *p.GRPC.Service != "liveness" || p.GRPC.Port != port(t, c, "grpc") {
			t.Errorf("%s probe: want gRPC's health of the service liveness", name)
		}
	}
	if p := c.ReadinessProbe; p == nil || p.HTTPGet == nil || p.HTTPGet.Path != "/readyz" || p.HTTPGet.Port != intstr.FromString("http") {
		t.Error("readiness probe: want /readyz")
	}
	var mounted []string
	for _, v := range c.VolumeMounts {
		mounted = append(mounted, v.Name)
		if v.SubPath != "" {
			t.Errorf("%s is mounted by subPath, which never changes", v.MountPath)
		}
	}
	for _, v := range pod.Volumes {
		if !slices.Contains(mounted, v.Name) {
			t.Errorf("volume %s is not mounted", v.Name)
		}
		if v.ConfigMap != nil && v.ConfigMap.Name != m.rules.Name {
			t.Errorf("got rules from %s, want from %s", v.ConfigMap.Name, m.rules.Name)
		}
	}
}

// port returns the number of a container's port.
func port(t *testing.T, c corev1.Container, name string) int32 {
	t.Helper()
	for _, p := range c.Ports {
		if p.Name == name {
			return p.ContainerPort
		}
	}
	t.Fatalf("no port %s", name)
	return 0
}

// What points at the pods finds them, and their ports.
func TestObjectsFitTogether(t *testing.T) {
	t.Parallel()
	m := read(t)
	pod := labels.Set(m.deployment.Spec.Template.Labels)
	for name, selector := range map[string]map[string]string{
		"Deployment":          m.deployment.Spec.Selector.MatchLabels,
		"Service":             m.service.Spec.Selector,
		"PodDisruptionBudget": m.budget.Spec.Selector.MatchLabels,
		"NetworkPolicy":       m.network.Spec.PodSelector.MatchLabels,
	} {
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(pod) {
			t.Errorf("%s: got selector %v, which is not of pods with %v", name, selector, pod)
		}
	}
	c := m.deployment.Spec.Template.Spec.Containers[0]
	for _, p := range m.service.Spec.Ports {
		if got := port(t, c, p.TargetPort.StrVal); got != p.Port {
			t.Errorf("Service: port %d leads to %d", p.Port, got)
		}
	}
	if int32(m.budget.Spec.MaxUnavailable.IntValue()) >= *m.deployment.Spec.Replicas {
		t.Error("PodDisruptionBudget: all pods may go at once")
	}
	if len(m.network.Spec.PolicyTypes) != 2 {
		t.Errorf("NetworkPolicy: got %v, want both directions", m.network.Spec.PolicyTypes)
	}
	var opened []string
	for _, rule := range m.network.Spec.Ingress {
		if len(rule.From) == 0 || len(rule.Ports) == 0 {
			t.Errorf("NetworkPolicy: got %v, want from whom and where to", rule)
		}
		for _, p := range rule.Ports {
			port(t, c, p.Port.StrVal)
			opened = append(opened, p.Port.StrVal)
		}
	}
	if len(opened) != len(c.Ports) {
		t.Errorf("NetworkPolicy: got %v opened, want every port of the pod once", opened)
	}
}
