package auth

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"slices"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestRules(t *testing.T) {
	alice := &Identity{User: "alice@example.com", Groups: []string{"dev", "core"}, claims: map[string][]string{"repository": {"acme/app"}}}
	one := func(r Rule) []Rule { return []Rule{r} }
	for _, test := range []struct {
		name     string
		rules    []Rule
		who      *Identity
		right    Right
		instance string
		want     bool
	}{
		{"a user", one(Rule{Users: []string{"alice@example.com"}, May: []Right{Read}}), alice, Read, "", true},
		{"another user", one(Rule{Users: []string{"bob@example.com"}, May: []Right{Read}}), alice, Read, "", false},
		{"part of a name", one(Rule{Users: []string{"alice"}, May: []Right{Read}}), alice, Read, "", false},
		{"a pattern", one(Rule{Users: []string{"*@example.com"}, May: []Right{Read}}), alice, Read, "", true},
		{"a dot is a dot", one(Rule{Users: []string{"alice@example?com", "alice@exampleXcom"}, May: []Right{Read}}), alice, Read, "", false},
		{"a group", one(Rule{Groups: []string{"ops", "core"}, May: []Right{Read}}), alice, Read, "", true},
		{"no such group", one(Rule{Groups: []string{"ops"}, May: []Right{Read}}), alice, Read, "", false},
		{"a group, not that user", one(Rule{Users: []string{"bob"}, Groups: []string{"core"}, May: []Right{Read}}), alice, Read, "", false},
		{"a claim", one(Rule{Claims: map[string]string{"repository": "acme/*"}, May: []Right{Read}}), alice, Read, "", true},
		{"another claim", one(Rule{Claims: map[string]string{"repository": "evil/acme/*"}, May: []Right{Read}}), alice, Read, "", false},
		{"a claim that is not there", one(Rule{Claims: map[string]string{"ref": "*"}, May: []Right{Read}}), alice, Read, "", false},
		{"nobody by a pattern for all users", one(Rule{Users: []string{"*"}, May: []Right{Read}}), nil, Read, "", false},
		{"nobody where anyone may", one(Rule{Anyone: true, May: []Right{Read}}), nil, Read, "", true},
		{"another right", one(Rule{Users: []string{"*"}, May: []Right{Read}}), alice, Write, "", false},
		{"work includes results", one(Rule{Users: []string{"*"}, May: []Right{Work}}), alice, WriteResults, "", true},
		{"work is not execute", one(Rule{Users: []string{"*"}, May: []Right{Work}}), alice, Execute, "", false},
		{"results are not work", one(Rule{Users: []string{"*"}, May: []Right{WriteResults}}), alice, Work, "", false},
		{"instance", one(Rule{Users: []string{"*"}, Instances: []string{"main"}, May: []Right{Read}}), alice, Read, "main", true},
		{"below an instance", one(Rule{Users: []string{"*"}, Instances: []string{"main"}, May: []Right{Read}}), alice, Read, "main/x", true},
		{"a name that begins alike", one(Rule{Users: []string{"*"}, Instances: []string{"main"}, May: []Right{Read}}), alice, Read, "mainly", false},
		{"a name that leads out of an instance", one(Rule{Users: []string{"*"}, Instances: []string{"main"}, May: []Right{Read}}), alice, Read, "main/../x", false},
		{"a name that is none", one(Rule{Users: []string{"*"}, Instances: []string{"main"}, May: []Right{Read}}), alice, Read, "main//x", false},
		{"another instance", one(Rule{Users: []string{"*"}, Instances: []string{"main"}, May: []Right{Read}}), alice, Read, "", false},
		{
			"the second rule",
			[]Rule{{Users: []string{"bob"}, May: []Right{Read}}, {Groups: []string{"dev"}, May: []Right{Read}}},
			alice, Read, "", true,
		},
		{"default: clients do not write results", DefaultRules(), alice, WriteResults, "", false},
		{"default: workers do", DefaultRules(), &Identity{User: "w", Groups: []string{WorkersGroup}}, WriteResults, "", true},
		{"default: nobody", DefaultRules(), nil, Read, "", false},
		{"this process", []Rule{}, &Identity{trusted: true}, Administer, "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, err := New(Options{Certificates: true, Rules: test.rules})
			if err != nil {
				t.Fatal(err)
			}
			if got := g.rules.allow(test.who, test.right, scope(0), test.instance); got != test.want {
				t.Errorf("%s may %s for %q: %t", test.who, test.right, test.instance, got)
			}
		})
	}
}

func TestScopes(t *testing.T) {
	r, err := newRule(Rule{Users: []string{"*"}, Instances: []string{"main"}, May: []Right{Execute}})
	if err != nil {
		t.Fatal(err)
	}
	if !r.gives(Execute, some, "") || r.gives(Execute, all, "") || !r.gives(Execute, one, "main") {
		t.Error("a rule for one instance name is one for some, and not for all")
	}
}

func TestRulesAreChecked(t *testing.T) {
	for want, r := range map[string]Rule{
		"gives no right":                   {Users: []string{"a"}},
		"names no caller":                  {May: []Right{Read}},
		"for anyone and for some":          {Anyone: true, Users: []string{"a"}, May: []Right{Read}},
		`right "reed" is none of`:          {Users: []string{"a"}, May: []Right{"reed"}},
		"instances: invalid instance name": {Users: []string{"a"}, Instances: []string{"x/"}, May: []Right{Read}},
		"cannot be given for some":         {Users: []string{"a"}, Instances: []string{"x"}, May: []Right{Administer}},
	} {
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
	rules := []Rule{{Users: []string{"a"}, May: []Right{Read}}}
	if _, err := New(Options{Rules: rules}); err == nil || !strings.Contains(err.Error(), "access rule 1: no caller can be authenticated") {
		t.Errorf("a rule for users that cannot be known: %v", err)
	}
}

// TestNamesThatAreNone: for an invalid instance name, a caller with rights for some names gets the
// error that the name is invalid, not that a right is missing.
func TestNamesThatAreNone(t *testing.T) {
	g, err := New(Options{Rules: []Rule{{Anyone: true, Instances: []string{"main"}, May: []Right{Read}}}})
	if err != nil {
		t.Fatal(err)
	}
	info := &grpc.UnaryServerInfo{FullMethod: repb.ActionCache_GetActionResult_FullMethodName}
	for name, want := range map[string]codes.Code{
		"main/x": codes.OK, "x": codes.PermissionDenied, "main/../x": codes.InvalidArgument,
	} {
		_, err := g.Unary(t.Context(), &repb.GetActionResultRequest{InstanceName: name}, info,
			func(context.Context, any) (any, error) { return nil, nil })
		if status.Code(err) != want {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
}

func TestCertificatesNameUsers(t *testing.T) {
	spiffe, err := url.Parse("spiffe://farm/worker")
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]*x509.Certificate{
		"alice":                {Subject: pkix.Name{CommonName: "alice"}, EmailAddresses: []string{"a@b"}},
		"spiffe://farm/worker": {URIs: []*url.URL{spiffe}, DNSNames: []string{"host"}},
		"a@b":                  {EmailAddresses: []string{"a@b", "c@d"}, DNSNames: []string{"host"}},
		"host":                 {DNSNames: []string{"host"}},
	} {
		if i, err := ofCertificate(c); err != nil || i.User != want {
			t.Errorf("%v, %v; want %s", i, err, want)
		}
	}
	i, err := ofCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: "w", OrganizationalUnit: []string{"a", "b"}}, EmailAddresses: []string{"a@b", "c@d"},
	})
	if err != nil || !slices.Equal(i.Groups, []string{"a", "b"}) || i.Claim("cert.email") != "a@b,c@d" || i.Claim("cert.cn") != "w" || i.Claim("x") != "" {
		t.Errorf("%+v, %v", i, err)
	}
	if _, err := ofCertificate(&x509.Certificate{}); err == nil {
		t.Error("a certificate that names nobody is taken")
	}
}

func TestInstanceOfResources(t *testing.T) {
	for resource, want := range map[string]string{
		"blobs/abc/1": "", "main/blobs/abc/1": "main", "a/b/uploads/u/blobs/abc/1": "a/b",
		"a/compressed-blobs/zstd/abc/1": "a", "a/blobsy/blobs/x/1": "a/blobsy", "nothing/of/it": "nothing/of/it", "": "",
	} {
		if got := instanceOf(resource); got != want {
			t.Errorf("instanceOf(%q) = %q, want %q", resource, got, want)
		}
	}
}

// TestOutputStreamsAreNoBlobs: the right to execute includes reading output streams of commands,
// and no blobs.
func TestOutputStreamsAreNoBlobs(t *testing.T) {
	blob := "blobs/" + strings.Repeat("0", 64) + "/1"
	for name, want := range map[string]Right{
		"streams/operations/x/stdout": Execute, "streams/operations/x/stderr": Execute,
		"streams/" + blob: Read, blob: Read, "streams/x": Read, "a/streams/operations/x/stdout": Read,
	} {
		if n, _ := needOf(need{right: Read}, &bytestream.ReadRequest{ResourceName: name}); n.right != want {
			t.Errorf("%s takes the right to %s, want %s", name, n.right, want)
		}
	}
}
