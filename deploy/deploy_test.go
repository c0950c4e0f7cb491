// Package deploy has files for those who run a farm, and tests that hold them to what
// the programs take.
package deploy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/forerunner-build/forerunner/farm"
)

// flagsOf returns the flags of a program, and its tuning settings.
func flagsOf(t *testing.T, program string) (f, tuning *pflag.FlagSet) {
	t.Helper()
	f = pflag.NewFlagSet(program, pflag.ContinueOnError)
	f.Bool("log-json", false, "")
	switch filepath.Base(program) {
	case "forerunner-scheduler":
		tuning = (&farm.Scheduler{}).Settings().Register(f)
	case "forerunner-worker":
		tuning = (&farm.Worker{}).Settings().Register(f)
	default:
		t.Fatalf("no such program: %s", program)
	}
	return f, tuning
}

// setFrom sets what the variables of a container say.
func setFrom(c container, flags, tuning *pflag.FlagSet) error {
	var errs []error
	for _, v := range c.Env {
		name, ours := strings.CutPrefix(v.Name, "FORERUNNER_")
		if !ours {
			continue
		}
		name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		f := cmp.Or(flags.Lookup(name), tuning.Lookup(name))
		if f == nil {
			errs = append(errs, fmt.Errorf("no program reads %s", v.Name))
			continue
		}
		errs = append(errs, f.Value.Set(v.Value))
	}
	return errors.Join(errs...)
}

func TestUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("apt-get install systemd: %v", err)
	}
	for _, name := range []string{"forerunner-scheduler", "forerunner-worker"} {
		text, err := os.ReadFile(filepath.Join("systemd", name+".service"))
		if err != nil {
			t.Fatal(err)
		}
		start := regexp.MustCompile(`(?m)^ExecStart=(\S+) (.*)$`).FindSubmatch(text)
		if start == nil || string(start[1]) != "/usr/local/bin/"+name {
			t.Fatalf("%s starts %q", name, start)
		}
		flags, _ := flagsOf(t, name)
		if err := flags.Parse(strings.Fields(string(start[2]))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// The program need not be installed here.
		unit := filepath.Join(t.TempDir(), name+".service")
		if err := os.WriteFile(unit, bytes.Replace(text, start[1], []byte("/bin/true"), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit).CombinedOutput()
		if err != nil || strings.Contains(string(out), unit) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// The parts of Kubernetes that the manifests use, as they are documented for its API.
type (
	header struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   metadata
	}
	object[S any] struct {
		header `yaml:",inline"`
		Spec   S
	}
	configMap struct {
		header `yaml:",inline"`
		Data   map[string]string
	}
	metadata struct {
		Name                string
		Labels, Annotations map[string]string
	}
	labels struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	deployment struct {
		Replicas int
		Selector labels
		Template template
		Strategy struct {
			RollingUpdate struct {
				MaxSurge       string `yaml:"maxSurge"`
				MaxUnavailable int    `yaml:"maxUnavailable"`
			} `yaml:"rollingUpdate"`
		}
	}
	statefulSet struct {
		ServiceName string `yaml:"serviceName"`
		Replicas    int
		Selector    labels
		Template    template
		Claims      []struct {
			Metadata metadata
			Spec     struct {
				AccessModes []string `yaml:"accessModes"`
				Resources   struct{ Requests map[string]string }
			}
		} `yaml:"volumeClaimTemplates"`
	}
	template struct {
		Metadata metadata
		Spec     pod
	}
	pod struct {
		Automount  *bool    `yaml:"automountServiceAccountToken"`
		Grace      int      `yaml:"terminationGracePeriodSeconds"`
		Security   security `yaml:"securityContext"`
		Containers []container
		Volumes    []struct {
			Name      string
			ConfigMap struct{ Name string } `yaml:"configMap"`
			EmptyDir  *struct{}             `yaml:"emptyDir"`
			Secret    struct {
				Name string `yaml:"secretName"`
				Mode int    `yaml:"defaultMode"`
			}
		}
	}
	security struct {
		RunAsNonRoot *bool                 `yaml:"runAsNonRoot"`
		RunAsUser    *int                  `yaml:"runAsUser"`
		RunAsGroup   *int                  `yaml:"runAsGroup"`
		FSGroup      *int                  `yaml:"fsGroup"`
		Seccomp      struct{ Type string } `yaml:"seccompProfile"`
		Privileged   bool
		Escalation   *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnly     bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities struct{ Drop []string }
	}
	container struct {
		Name, Image string
		Args        []string
		Env         []struct {
			Name, Value string
			ValueFrom   struct {
				FieldRef struct {
					Path string `yaml:"fieldPath"`
				} `yaml:"fieldRef"`
			} `yaml:"valueFrom"`
		}
		Ports     []containerPort
		Lifecycle struct {
			PreStop struct{ Exec struct{ Command []string } } `yaml:"preStop"`
		}
		Readiness probe `yaml:"readinessProbe"`
		Liveness  probe `yaml:"livenessProbe"`
		Startup   probe `yaml:"startupProbe"`
		Resources struct{ Requests, Limits map[string]string }
		Security  security `yaml:"securityContext"`
		Mounts    []struct {
			Name     string
			Path     string `yaml:"mountPath"`
			ReadOnly bool   `yaml:"readOnly"`
		} `yaml:"volumeMounts"`
	}
	containerPort struct {
		Name string
		Port int `yaml:"containerPort"`
	}
	probe struct {
		Get      struct{ Path, Port, Scheme string } `yaml:"httpGet"`
		Period   int                                 `yaml:"periodSeconds"`
		Failures int                                 `yaml:"failureThreshold"`
		Timeout  int                                 `yaml:"timeoutSeconds"`
	}
	service struct {
		ClusterIP string `yaml:"clusterIP"`
		Selector  map[string]string
		Ports     []struct {
			Name   string
			Port   int
			Target string `yaml:"targetPort"`
		}
	}
	scaler struct {
		Target struct {
			APIVersion string `yaml:"apiVersion"`
			Kind, Name string
		} `yaml:"scaleTargetRef"`
		Min     int `yaml:"minReplicas"`
		Max     int `yaml:"maxReplicas"`
		Metrics []struct {
			Type     string
			External struct {
				Metric struct {
					Name     string
					Selector labels
				}
				Target struct {
					Type    string
					Average string `yaml:"averageValue"`
				}
			}
		}
		Behavior map[string]map[string]int
	}
	budget struct {
		MaxUnavailable string `yaml:"maxUnavailable"`
		Selector       labels
	}
)

// manifests are all that the files say.
type manifests struct {
	*testing.T
	configs     map[string]configMap
	services    map[string]service
	deployments map[string]deployment
	sets        map[string]statefulSet
	scalers     map[string]scaler
	budgets     map[string]budget
}

func readManifests(t *testing.T) *manifests {
	t.Helper()
	m := &manifests{
		t,
		map[string]configMap{},
		map[string]service{},
		map[string]deployment{},
		map[string]statefulSet{},
		map[string]scaler{},
		map[string]budget{},
	}
	files, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(string(text), "\n---\n") {
			var h header
			if err := yaml.Unmarshal([]byte(part), &h); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if err := m.read(h, part); err != nil {
				t.Errorf("%s: %s %s: %v", file, h.Kind, h.Metadata.Name, err)
			}
		}
	}
	return m
}

func (m *manifests) read(h header, text string) error {
	switch h.APIVersion + " " + h.Kind {
	case "v1 ConfigMap":
		var c configMap
		err := strict(text, &c)
		m.configs[h.Metadata.Name] = c
		return err
	case "v1 Service":
		return strictSpec(text, h.Metadata.Name, m.services)
	case "apps/v1 Deployment":
		return strictSpec(text, h.Metadata.Name, m.deployments)
	case "apps/v1 StatefulSet":
		return strictSpec(text, h.Metadata.Name, m.sets)
	case "autoscaling/v2 HorizontalPodAutoscaler":
		return strictSpec(text, h.Metadata.Name, m.scalers)
	case "policy/v1 PodDisruptionBudget":
		return strictSpec(text, h.Metadata.Name, m.budgets)
	}
	return errors.New("there is no such kind here")
}

// strict decodes YAML and fails on fields that are not known.
func strict(text string, into any) error {
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		return err
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("more than one document")
	}
	return nil
}

func strictSpec[S any](text, name string, into map[string]S) error {
	var o object[S]
	err := strict(text, &o)
	into[name] = o.Spec
	return err
}

// within reports whether a selector picks what has these labels.
func within(selector, have map[string]string) bool {
	for k, v := range selector {
		if have[k] != v {
			return false
		}
	}
	return len(selector) > 0
}

func TestManifests(t *testing.T) {
	m := readManifests(t)
	for name, d := range m.deployments {
		m.checkTemplate(name, d.Selector, d.Template, nil)
		m.checkWorker(name, d)
	}
	for name, s := range m.sets {
		var claims []string
		for _, c := range s.Claims {
			claims = append(claims, c.Metadata.Name)
		}
		m.checkTemplate(name, s.Selector, s.Template, claims)
		service, ok := m.services[s.ServiceName]
		if !ok || !within(service.Selector, s.Template.Metadata.Labels) {
			t.Errorf("%s: service %q does not select it", name, s.ServiceName)
		}
		for _, p := range service.Ports {
			if !slices.ContainsFunc(s.Template.Spec.Containers[0].Ports, func(c containerPort) bool {
				return c.Name == p.Target && c.Port == p.Port
			}) {
				t.Errorf("%s: no container has the port %+v of the service", name, p)
			}
		}
	}
	if len(m.deployments) < 2 || len(m.sets) != 1 || len(m.scalers) != len(m.deployments) || len(m.budgets) != len(m.deployments) {
		t.Errorf("%d deployments, %d sets, %d scalers, %d budgets", len(m.deployments), len(m.sets), len(m.scalers), len(m.budgets))
	}
	for name, b := range m.budgets {
		if d := m.deployments[name]; !within(b.Selector.MatchLabels, d.Template.Metadata.Labels) {
			t.Errorf("%s: the budget is for no pod of it", name)
		}
	}
}

// checkTemplate checks what all pods have in common.
func (m *manifests) checkTemplate(name string, selector labels, p template, claims []string) {
	m.Helper()
	if !within(selector.MatchLabels, p.Metadata.Labels) {
		m.Errorf("%s: its selector does not select its pods", name)
	}
	volumes := slices.Clone(claims)
	for _, v := range p.Spec.Volumes {
		volumes = append(volumes, v.Name)
		if c := v.ConfigMap.Name; c != "" && len(m.configs[c].Data) == 0 {
			m.Errorf("%s: there is no ConfigMap %s", name, c)
		}
	}
	for _, c := range p.Spec.Containers {
		program, _, _ := strings.Cut(c.Image, ":")
		flags, tuning := flagsOf(m.T, program)
		if err := errors.Join(flags.Parse(c.Args), setFrom(c, flags, tuning)); err != nil {
			m.Errorf("%s: %v", name, err)
		}
		mounted := func(path string) bool {
			for _, v := range c.Mounts {
				if strings.HasPrefix(path, v.Path+"/") {
					return true
				}
			}
			return false
		}
		flags.Visit(func(f *pflag.Flag) {
			if v := f.Value.String(); strings.HasPrefix(v, "/") && !mounted(v) {
				m.Errorf("%s: --%s=%s is on no volume", name, f.Name, v)
			}
		})
		for _, v := range c.Mounts {
			if !slices.Contains(volumes, v.Name) {
				m.Errorf("%s: there is no volume %s", name, v.Name)
			}
		}
		if http := flags.Lookup("http").Value.String(); c.Liveness.Get.Port != "http" || !slices.ContainsFunc(c.Ports, func(p containerPort) bool {
			return p.Name == "http" && strings.HasSuffix(http, ":"+strconv.Itoa(p.Port))
		}) {
			m.Errorf("%s: its probe does not ask %s", name, http)
		}
		if c.Startup.Get != c.Liveness.Get || c.Startup.Period*c.Startup.Failures < 3600 {
			m.Errorf("%s: %+v: a program that reads a large store, or waits for storage, is taken for dead", name, c.Startup)
		}
	}
}

// checkWorker checks a pool of workers and its autoscaler.
func (m *manifests) checkWorker(name string, d deployment) {
	m.Helper()
	c := d.Template.Spec.Containers[0]
	flags, _ := flagsOf(m.T, "forerunner-worker")
	if err := flags.Parse(c.Args); err != nil {
		m.Error(err)
		return
	}
	class, slots := flags.Lookup("size-class").Value.String(), flags.Lookup("slots").Value.String()
	s := m.scalers[name]
	if s.Target.Kind != "Deployment" || s.Target.Name != name || len(s.Metrics) != 1 || s.Max <= s.Min {
		m.Errorf("%s: scaled by %+v", name, s)
		return
	}
	external := s.Metrics[0].External
	if external.Metric.Selector.MatchLabels["size_class"] != class || external.Target.Average != slots {
		m.Errorf("%s has class %s and %s slots, and is scaled by %+v", name, class, slots, external)
	}
	if !c.Security.Privileged || d.Template.Spec.Grace < 3600 || len(c.Lifecycle.PreStop.Exec.Command) == 0 {
		m.Errorf("%s: %+v, %d s, %q: a worker mounts, and drains before it goes", name, c.Security, d.Template.Spec.Grace, c.Lifecycle.PreStop)
	}
	for resource, want := range c.Resources.Requests {
		if c.Resources.Limits[resource] != want {
			m.Errorf("%s: %s is %s at least and %s at most", name, resource, want, c.Resources.Limits[resource])
		}
	}
}

// TestDockerfile checks what can be without an engine: stages, programs, flags.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	var stages []string
	for _, m := range regexp.MustCompile(`(?m)^(FROM) \S+ AS (\S+)|^COPY (?:--from=(\S+))|^ENTRYPOINT (.*)$|^RUN (.*go build.*)$`).FindAllStringSubmatch(joined, -1) {
		switch {
		case m[1] != "":
			stages = append(stages, m[2])
		case m[3] != "" && !slices.Contains(stages, m[3]):
			t.Errorf("COPY from %s, and there is only %q", m[3], stages)
		case m[4] != "":
			var argv []string
			if err := json.Unmarshal([]byte(m[4]), &argv); err != nil {
				t.Fatalf("%s: %v", m[4], err)
			}
			flags, _ := flagsOf(t, argv[0])
			if err := flags.Parse(argv[1:]); err != nil {
				t.Error(err)
			}
		case m[5] != "":
			for _, program := range regexp.MustCompile(`\./cmd/\S+`).FindAllString(m[5], -1) {
				if _, err := os.Stat(filepath.Join("..", program, "main.go")); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if want := []string{"build", "scheduler", "worker"}; !slices.Equal(stages, want) {
		t.Errorf("stages %q, want %q", stages, want)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`)
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if v := version.FindSubmatch(mod); !strings.Contains(joined, "FROM golang:"+string(v[1])+"-") {
		t.Errorf("the image is not built with Go %s of go.mod", v[1])
	}
}
