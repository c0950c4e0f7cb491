package inprocess

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// headersOf returns the headers that a client sends with a call.
func headersOf(ctx context.Context) (metadata.MD, error) {
	headers, ok := metadata.FromOutgoingContext(ctx)
	if !ok {
		return metadata.MD{}, nil
	}
	return headers, checkHeaders(headers)
}

// checkHeaders returns the error of headers that no connection carries.
func checkHeaders(headers metadata.MD) error {
	for name, values := range headers {
		if !isName(name) {
			return fault(codes.Internal, "header %q has a name with other characters than a-z, 0-9, \".\", \"-\" and \"_\"", name)
		}
		if strings.HasSuffix(name, "-bin") {
			continue
		}
		for _, value := range values {
			if !isPrintable(value) {
				return fault(codes.Internal, "header %q has a value with characters that cannot be printed", name)
			}
		}
	}
	return nil
}

func isName(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return name != ""
}

func isPrintable(value string) bool {
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return false
		}
	}
	return true
}
