package peer

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// TestPoolForgets: peers that no caller named for long, and surplus peers, lose their connections.
func TestPoolForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := map[string]*grpc.ClientConn{}
		p := NewPool(func(address string) (*grpc.ClientConn, error) {
			if address == "bad" {
				return nil, errors.New("no such host")
			}
			conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
			open[address] = conn
			return conn, err
		}, zap.NewNop())
		connected := func() (count int) {
			for _, conn := range open {
				if conn.GetState() != connectivity.Shutdown {
					count++
				}
			}
			return count
		}
		if asked := p.At([]string{"bad", "a", "b", "c"}); len(asked) != maxPeers-1 || connected() != 2 {
			t.Errorf("%d peers, %d connections", len(asked), connected())
		}
		a := p.At([]string{"a"})[0]
		time.Sleep(maxIdle / 2)
		if p.At([]string{"a"})[0] != a {
			t.Error("a peer is not known again")
		}
		time.Sleep(maxIdle / 2)
		if p.At([]string{"c"}); connected() != 2 || open["b"].GetState() != connectivity.Shutdown {
			t.Errorf("%d connections", connected())
		}
		for i := range 2 * maxConnected {
			p.At([]string{fmt.Sprint(i)})
			time.Sleep(time.Millisecond)
		}
		if connected() != maxConnected || open["a"].GetState() != connectivity.Shutdown {
			t.Errorf("%d connections", connected())
		}
		p.Close()
		if connected() != 0 {
			t.Errorf("%d connections at the end", connected())
		}
	})
}
