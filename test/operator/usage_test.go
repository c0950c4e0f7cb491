package operator

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/test/programs"
)

// A misuse is a call of a program with a setting that cannot be used.
type misuse struct {
	// args are further arguments; FILE, JUNK, EMPTY and SPACES are paths of files.
	args string
	// config is the content of the file of --config; empty: there is none.
	config string
	// names is what the error must name.
	names string
}

const (
	issuerA = "login: {issuers: [{issuer: 'https://a', client_id: b}]}\n"
	accessA = "access: [{users: [a], may: [read]}]\n"
)

// ofAll are wrong settings that the worker, the scheduler and forerunner up have.
var ofAll = []misuse{
	{"--no-such-flag", "", "--no-such-flag"},
	{"--cache-size huge", "", "--cache-size"},
	{"--data=", "", "--data"},
	{"--http foo", "", "--http"},
	{"--http 0.0.0.0:0", "", "--http"},
	{"--http 127.0.0.1:0 --tls-cert JUNK --tls-key JUNK", "", "--tls-cert"},
	{"--http 127.0.0.1:0 --tls-cert MISSING --tls-key MISSING", "", "--tls-cert"},
	{"--http 127.0.0.1:0 --tls-cert JUNK", "", "--tls-key"},
	{"--http 127.0.0.1:0 --tls-client-ca JUNK", "", "--tls-client-ca"},
	{"--config MISSING", "", "--config"},
	{"--config PIPE", "", "--config"},
	{"--log-level loud", "", "--log-level"},
	{"", "no: such", "--config"},
	{"", "tuning: {no_such: 1}", "tuning.no_such"},
	{"", "tuning: {memory_limit: much}", "tuning.memory_limit"},
	{"", "tuning: {upload_window: 1}", "tuning.upload_window"},
	{"", "tuning: {max_streams: -1}", "tuning.max_streams"},
	{"", "tuning: {max_streams: 3000000000}", "tuning.max_streams"},
	{"", "tuning: {max_connections: -1}", "tuning.max_connections"},
	{"", "tuning: {waiting_goroutines: 1000000}", "tuning.waiting_goroutines"},
	{"", "tuning: {receive_timeout: -1s}", "tuning.receive_timeout"},
	{"", "tuning: {monitor_slack: -1s}", "tuning.monitor_slack"},
	{"", "tuning: {scrub_every: -1s}", "tuning.scrub_every"},
	{"", "tuning: {scrub_rate: fast}", "tuning.scrub_rate"},
	{"", "tuning: {verify_every: -1s}", "tuning.verify_every"},
	{"", "tuning: {otlp_endpoint: foo}", "tuning.otlp_endpoint"},
	{"", "access: [{users: [a], may: [fly]}]", "access[0].may[0]"},
	{"", accessA, "access rule 1"},
	{"", "tokens: [{issuer: 'http://a', audience: b}]", "tokens[0]"},
	{"", "tokens: [{issuer: 'https://a', audience: b, keys_file: MISSING}]", "tokens of"},
}

// ofCommands are wrong settings that the worker and forerunner up have.
var ofCommands = []misuse{
	{"--slots -1", "", "--slots"},
	{"--slots many", "", "--slots"},
	{"--slots 100000", "", "needs"}, // open files
	{"--size-class -1", "", "--size-class"},
	{"--platform foo", "", "--platform"},
	{"--user nosuchuser", "", "--user"},
	{"--user 5-5 --slots 2", "", "--user"},
	{"--user 0-5", "", "--user"},
	{"--policies MISSING", "", "--policies"},
	{"--policies JUNK", "", "--policies"},
	{"--sandbox some", "", "--sandbox"},
	{"--sandbox none", "tuning: {network: 'off'}", "tuning.network"},
	{"--sandbox none", "tuning: {show: [/srv]}", "tuning.show"},
	{"", "tuning: {network: maybe}", "tuning.network"},
	{"", "tuning: {show: [relative]}", "tuning.show"},
	{"", "tuning: {show: [/tmp/x]}", "tuning.show"},
	{"", "tuning: {require: [x]}", "NAME=VALUE"},
	{"--reuse always", "", "--reuse"},
	{"--reuse profile", "tuning: {exec_filesystem: hardlink}", "--reuse"},
	{"", "tuning: {reuse_epoch: x}", "tuning.reuse_epoch"},
	{"", "tuning: {reuse_machine: x}", "tuning.reuse_machine"},
	{"", "tuning: {exec_filesystem: foo}", "tuning.exec_filesystem"},
	{"", "tuning: {cgroup: maybe}", "tuning.cgroup"},
	{"", "tuning: {cgroup: 'off', slot_cpus: 1}", "tuning.slot_cpus"},
	{"", "tuning: {cgroup: 'off', slot_memory: 1G}", "tuning.slot_memory"},
	{"", "tuning: {slot_cpus: -1}", "tuning.slot_cpus"},
	{"", "tuning: {slot_cpus: 99999}", "tuning.slot_cpus"},
	{"", "tuning: {slot_memory: 900T}", "tuning.slot_memory"},
	{"", "tuning: {slot_memory: much}", "tuning.slot_memory"},
	{"", "tuning: {fetch_width: -1}", "tuning.fetch_width"},
	{"", "tuning: {max_output_files: -1}", "tuning.max_output_files"},
	{"", "tuning: {max_output_bytes: much}", "tuning.max_output_bytes"},
	{"", "tuning: {max_scratch: much}", "tuning.max_scratch"},
	{"", "tuning: {upper_memory: much}", "tuning.upper_memory"},
	{"", "tuning: {memory_cache: much}", "tuning.memory_cache"},
}

// ofWorker are wrong settings that only a worker of its own has.
var ofWorker = []misuse{
	{"--scheduler=", "", "--scheduler"},
	{"--scheduler foo", "", "--scheduler"},
	{"--storage=", "", "--storage"},
	{"--storage grpc://127.0.0.1:1?foo=1", "", "--storage"},
	{"--storage grpc://127.0.0.1:1?token-file=SPACES", "", "--storage: --token-file"},
	{"--scheduler grpcs://127.0.0.1:1 --tls-ca JUNK", "", "--tls-ca"},
	{"--scheduler grpcs://127.0.0.1:1 --tls-client-cert JUNK", "", "--tls-client-cert"},
	{"--storage grpcs://127.0.0.1:1 --tls-ca JUNK", "", "--tls-ca"},
	{"--token-file SPACES", "", "--token-file"},
	{"--token-file MISSING", "", "--token-file"},
	{"--scheduler grpc://192.0.2.1:1 --token-file JUNK", "", "--token-file"},
	{"--state foo", "", "--state"},
	{"--state redis://127.0.0.1:x", "", "--state"},
	{"--state redis://127.0.0.1:1?foo=1", "", "--state"},
	{"--state grpc://foo", "", "--state"},
	{"--state grpcs://127.0.0.1:1 --tls-ca JUNK", "", "--state"},
	{"--serve-cache 0.0.0.0:0", "", "--serve-cache"},
	{"--serve-cache :9", "", "--serve-cache"},
	{"--serve-cache 192.0.2.1:9", "", "--serve-cache"},
	{"--id foo", "", "--id"},
	{"", "tuning: {action_cache: foo}", "tuning.action_cache"},
	{"", "tuning: {action_cache: 'grpc://127.0.0.1:1?instance=x'}", "tuning.action_cache"},
	{"", "tuning: {browser_url: foo}", "tuning.browser_url"},
	{"", "tuning: {instance_prefix: a//b}", "tuning.instance_prefix"},
	{"", "tuning: {cache_dir: JUNK}", "tuning.cache_dir"},
	{"", "tuning: {mount: JUNK}", "tuning.mount"},
}

// ofServers are wrong settings that the scheduler and forerunner up have.
var ofServers = []misuse{
	{"--listen=", "", "--listen"},
	{"--listen foo", "", "--listen"},
	{"--listen 0.0.0.0:0", "", "--listen"},
	{"--page-url foo", "", "--page-url"},
	{"--keep-records -1s", "", "--keep-records"},
	{"--cache-writes some", "", "--cache-writes"},
	{"--cache-writes clients", "tokens: [{issuer: 'https://a', audience: b}]", "--cache-writes"},
	{"", "tuning: {records_size: much}", "tuning.records_size"},
	{"", "tuning: {max_timeout: 1s, default_timeout: 1h}", "max_timeout"},
	{"", "tuning: {default_timeout: 0s}", "tuning.default_timeout"},
	{"", "queues: [{foo: 1}]", "queues[0].foo"},
	{"", "size_classes: [{classes: [0]}]", "size_classes[0]"},
	{"", "cohorts: {a: {labels: [b]}}", "cohorts.a"},
	{"", "cohorts: {a: {}}", "cohorts.a"},
	{"", "learn_sizes: {exponent: 3}", "learn_sizes.exponent"},
	{"", "preemption: {delay: -1s}", "preemption.delay"},
	{"", "operations_belong_to: user", "operations_belong_to"},
	{"", "operations_belong_to: foo", "operations_belong_to"},
	{"", issuerA, "access"},
	{"--http=", issuerA + accessA, "--http"},
	{"--http 127.0.0.1:0", issuerA + accessA, "--page-url"},
	{"--http 127.0.0.1:0 --page-url http://farm.example.com", issuerA + accessA, "--page-url"},
	{"--http 127.0.0.1:0 --page-url http://localhost", "login: {issuers: [{issuer: 'https://a', client_id: b, client_secret_file: MISSING}]}\n" + accessA, "client_secret_file"},
	{"--http 127.0.0.1:0 --page-url http://localhost", "login: {issuers: [{issuer: 'https://a', client_id: b, client_secret_file: EMPTY}]}\n" + accessA, "client_secret_file"},
	{"--http 127.0.0.1:0 --page-url http://localhost", "login: {issuers: [{issuer: 'https://a', client_id: b}], key_file: MISSING}\n" + accessA, "key_file"},
	{"--http 127.0.0.1:0 --page-url http://localhost", "login: {issuers: [{issuer: 'https://a', client_id: b}], key_file: JUNK}\n" + accessA, "key_file"},
}

// ofScheduler are wrong settings that only a scheduler of its own has.
var ofScheduler = []misuse{
	{"--storage foo", "", "--storage"},
	{"--storage dir:", "", "--storage"},
	{"--storage grpc://127.0.0.1:1 --isolate-content", "", "--isolate-content"},
	{"--storage grpc://127.0.0.1:1 --cache-writes clients", "", "--cache-writes"},
	{"--storage grpc://127.0.0.1:1?token-file=SPACES", "", "--token-file"},
	{"--storage grpcs://127.0.0.1:1 --tls-ca JUNK", "", "--tls-ca"},
	{"", "tuning: {action_cache: 'grpc://127.0.0.1:1'}", "tuning.action_cache"},
	{"--state foo", "", "--state"},
	{"--state redis://127.0.0.1:x", "", "--state"},
	{"--state grpcs://127.0.0.1:1 --tls-ca JUNK", "", "--state"},
	{"--lease x", "", "--lease"},
	{"--lease x --state redis://127.0.0.1:1", "", "--lease"},
	{"--lease x --state redis://127.0.0.1:1 --storage grpc://127.0.0.1:1", accessA, "access rule 1"},
	{"", "tuning: {lease_time: -1s}", "tuning.lease_time"},
}

// TestUsageErrorsLeaveNothing calls the programs with settings that cannot be used. Each must say
// which, with the exit code of a wrong call, and before it has made its data folder.
func TestUsageErrorsLeaveNothing(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.OwnSandbox)
	pipe := filepath.Join(f.Dir, "pipe")
	if out, err := exec.CommandContext(t.Context(), "mkfifo", pipe).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files := strings.NewReplacer(
		"JUNK", f.Write("junk", "junk"), "SPACES", f.Write("spaces", "a b"), "EMPTY", f.Write("empty", ""),
		"MISSING", filepath.Join(f.Dir, "missing"), "PIPE", pipe,
	)
	for _, program := range []struct {
		args  []string
		wrong []misuse
	}{
		{[]string{"forerunner-worker", "--scheduler=grpc://127.0.0.1:1", "--storage=grpc://127.0.0.1:1", "--http=127.0.0.1:0"}, slices.Concat(ofAll, ofCommands, ofWorker)},
		{[]string{"forerunner-scheduler", "--listen=127.0.0.1:0", "--http=127.0.0.1:0"}, slices.Concat(ofAll, ofServers, ofScheduler)},
		{[]string{"forerunner", "up", "--listen=127.0.0.1:0", "--http=127.0.0.1:0"}, slices.Concat(ofAll, ofServers, ofCommands)},
	} {
		for _, m := range program.wrong {
			data := filepath.Join(f.Dir, "data")
			args := slices.Concat(program.args, []string{"--data", data}, strings.Fields(files.Replace(m.args)))
			if m.config != "" {
				args = append(args, "--config", f.Write("config.yaml", files.Replace(m.config)))
			}
			what := strings.Join(program.args[:1], " ") + " " + m.args + " " + m.config
			p := f.Start(args...)
			select {
			case <-p.Exited:
			case <-time.After(programs.Timeout / 4):
				p.Kill()
				t.Errorf("%s: it started:\n%s", what, &p.Stderr)
			}
			if code := p.Wait(); code != 2 {
				t.Errorf("%s: exit code %d, want 2", what, code)
			}
			said := p.Stderr.String()
			if !strings.Contains(said, m.names) || strings.Count(said, "\n") != 1 || !strings.Contains(said, "--help") {
				t.Errorf("%s: want one line that names %s and --help:\n%s", what, m.names, said)
			}
			if _, err := os.Lstat(data); err == nil {
				t.Errorf("%s: it left its data folder", what)
				if err := os.RemoveAll(data); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
