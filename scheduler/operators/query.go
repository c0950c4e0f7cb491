package operators

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/bounded/least"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
)

// MaxPage bounds the entries of one answer.
const MaxPage = 1000

// A first keeps the first names after a token, in their order, of as many as one likes.
type first struct {
	token string
	size  int
	// names has the names of the page, and one more if there is a next page.
	names least.List[string]
}

func newFirst(token string, asked int32) *first {
	size := pageSize(asked)
	return &first{token: token, size: size, names: least.Of(size+1, strings.Compare)}
}

// pageSize returns the number of entries on a page, for the requested number.
func pageSize(asked int32) int {
	if asked <= 0 || asked > MaxPage {
		return MaxPage
	}
	return int(asked)
}

func (f *first) add(name string) {
	if name > f.token {
		f.names.Add(name)
	}
}

// page returns them and the next token, which is empty at the end.
func (f *first) page() (names []string, next string) {
	names = f.names.Sorted()
	if len(names) <= f.size {
		return names, ""
	}
	return names[:f.size], names[f.size-1]
}

func patternOf(m *admin.Pattern) (pattern.Pattern, error) {
	p, err := pattern.New(m.GetAttributes())
	if err != nil {
		return p, status.Errorf(codes.InvalidArgument, "pattern: %v", err)
	}
	return p, nil
}

// knows returns why a pattern cannot match: it has a name that is not in names, the attributes
// of this kind of object.
func knows(p pattern.Pattern, kind string, names []string) error {
	for name := range p.Map() {
		if !slices.Contains(names, name) {
			return status.Errorf(codes.InvalidArgument, "pattern %q: no %s has %q; there are %s", p, kind, name, strings.Join(names, ", "))
		}
	}
	return nil
}

// ofOperations returns the pattern of a message about operations.
func ofOperations(m *admin.Pattern) (pattern.Pattern, error) {
	p, err := patternOf(m)
	if err != nil {
		return p, err
	}
	attributes := pattern.OperationAttributes()
	for name := range p.Map() {
		if strings.HasPrefix(name, "platform.") {
			attributes = append(attributes, name)
		}
	}
	if err := knows(p, "operation", append(attributes, "platform.NAME")); err != nil {
		return p, err
	}
	if stages := view.Stages(); !p.Fits("stage", stages) {
		return p, status.Errorf(codes.InvalidArgument, "pattern %q: no operation has that stage; there are %s", p, strings.Join(stages, " and "))
	}
	return p.OfOperations(names.OperationPrefix), nil
}
