package dial

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// TestThroughAProxy calls a farm from a process whose environment names a proxy, and expects the
// proxy to be asked for the way. Environments of proxies are read once in a process, hence one for
// it.
func TestThroughAProxy(t *testing.T) {
	const child = "FORERUNNER_TEST_PROXIED"
	if os.Getenv(child) != "" {
		conn, err := Dial("farm.example:8980")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		t.Log(err) // the proxy has hung up
		return
	}
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	asked := make(chan string, 1)
	go func() {
		defer close(asked)
		conn, err := proxy.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		line, _ := bufio.NewReader(conn).ReadString('\n')
		asked <- line
	}()
	client := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestThroughAProxy$", "-test.v")
	client.Env = append(os.Environ(), child+"=1", "HTTPS_PROXY=http://"+proxy.Addr().String(), "NO_PROXY=")
	if out, err := client.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_ = proxy.Close()
	if line := <-asked; !strings.HasPrefix(line, "CONNECT farm.example:8980 ") {
		t.Errorf("the proxy was asked %q", line)
	}
}
