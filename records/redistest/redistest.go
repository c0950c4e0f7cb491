package redistest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/freeport"
)

// patience is the timeout of every wait in this package.
const patience = 20 * time.Second

// A Server is a redis-server, or a Sentinel.
type Server struct {
	t    testing.TB
	Addr string // HOST:PORT

	command   *exec.Cmd
	arguments []string
	ended     chan struct{}
}

// Start starts a server and returns when it answers. arguments are arguments of redis-server.
func Start(t testing.TB, arguments ...string) *Server {
	t.Helper()
	need(t, "redis-server")
	address := freeport.Address(t)
	_, port, _ := net.SplitHostPort(address)
	s := &Server{t: t, Addr: address, arguments: append([]string{
		"redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--appendonly", "no",
		"--repl-diskless-sync-delay", "0",
	}, arguments...)}
	s.start()
	return s
}

// StartTLS starts a server as Start does, and returns its TLS address. Clients and server need
// certificates of authority. All arguments are files.
func StartTLS(t testing.TB, authority, certificate, key string) (address string) {
	t.Helper()
	s := Start(t, "--tls-port", "0", "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", authority)
	address = freeport.Address(t)
	_, port, _ := net.SplitHostPort(address)
	s.Do("CONFIG", "SET", "tls-port", port)
	return address
}

func (s *Server) start() {
	s.t.Helper()
	s.command = exec.Command(s.arguments[0], s.arguments[1:]...)
	var output bytes.Buffer
	s.command.Stdout, s.command.Stderr = &output, &output
	// If the test process is killed, the server ends too.
	s.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.command.Start(); err != nil {
		s.t.Fatal(err)
	}
	command, ended := s.command, make(chan struct{})
	s.ended = ended
	go func() {
		defer close(ended)
		_ = command.Wait()
	}()
	s.t.Cleanup(s.Kill)
	Eventually(s.t, "redis-server answers", func() bool {
		select {
		case <-ended:
			s.t.Fatalf("redis-server has ended:\n%s", &output)
		default:
		}
		return s.try("PING") != "" // an error that asks for a password is an answer too
	})
}

// Kill ends the server with SIGKILL, if it is still running.
func (s *Server) Kill() {
	_ = s.command.Process.Kill() // also ends a paused process
	<-s.ended
}

// Restart starts a killed server again at the same address, without data.
func (s *Server) Restart() {
	s.t.Helper()
	s.start()
}

// Pause stops the server's process until Resume. It then does not answer.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume continues a paused server.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) {
	s.t.Helper()
	if err := s.command.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
}

// Do sends one command and returns the reply as redis-cli prints it.
func (s *Server) Do(command ...string) string {
	s.t.Helper()
	answer := s.try(command...)
	if strings.HasPrefix(answer, "ERR") || strings.HasPrefix(answer, "-") {
		s.t.Fatalf("redis %s: %s", command, answer)
	}
	return answer
}

// try sends one command whose words need no quotes, and returns the raw reply.
func (s *Server) try(command ...string) string {
	conn, err := net.DialTimeout("tcp", s.Addr, patience)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	request := fmt.Sprintf("*%d\r\n", len(command))
	for _, word := range command {
		request += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := conn.Write([]byte(request)); err != nil {
		return ""
	}
	answer := make([]byte, 64<<10)
	n, _ := conn.Read(answer)
	return string(answer[:n])
}

// StartSentinels starts three Sentinels that watch master under the name "farm". It returns when
// they know each other and the replicas.
func StartSentinels(t testing.TB, master *Server, replicas int) []*Server {
	t.Helper()
	need(t, "redis-sentinel")
	host, port, _ := net.SplitHostPort(master.Addr)
	var sentinels []*Server
	for range 3 {
		address := freeport.Address(t)
		_, own, _ := net.SplitHostPort(address)
		file := filepath.Join(t.TempDir(), "sentinel.conf")
		config := fmt.Sprintf("port %s\nbind 127.0.0.1\nsentinel monitor farm %s %s 2\n"+
			"sentinel down-after-milliseconds farm 500\nsentinel failover-timeout farm 3000\n", own, host, port)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &Server{t: t, Addr: address, arguments: []string{"redis-sentinel", file}}
		s.start()
		sentinels = append(sentinels, s)
	}
	for _, s := range sentinels {
		Eventually(t, "Sentinels know each other", func() bool {
			others := strings.Count(s.Do("SENTINEL", "SENTINELS", "farm"), "runid")
			known := strings.Count(s.Do("SENTINEL", "REPLICAS", "farm"), "runid")
			return others == 2 && known == replicas
		})
	}
	return sentinels
}

// StartCluster starts a Cluster of two nodes, each with half of the slots.
func StartCluster(t testing.TB) []*Server {
	t.Helper()
	var nodes []*Server
	for _, slots := range [][2]string{{"0", "8191"}, {"8192", "16383"}} {
		_, bus, _ := net.SplitHostPort(freeport.Address(t))
		node := Start(t, "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "1000")
		node.Do("CLUSTER", "ADDSLOTSRANGE", slots[0], slots[1])
		if len(nodes) > 0 {
			host, port, _ := net.SplitHostPort(node.Addr)
			nodes[0].Do("CLUSTER", "MEET", host, port, bus)
		}
		nodes = append(nodes, node)
	}
	for _, node := range nodes {
		Eventually(t, "the Cluster is whole", func() bool {
			info := node.Do("CLUSTER", "INFO")
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384")
		})
	}
	return nodes
}

// Eventually waits until holds returns true. It fails the test if that takes too long.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func need(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is missing", program)
	}
	t.Skipf("%s is missing: apt-get install %[1]s", program)
}
