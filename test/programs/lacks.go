package programs

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// Lacks reports whether err tells a client to upload d.
func Lacks(err error, d digest.Digest) bool {
	for _, detail := range status.Convert(err).Details() {
		failure, _ := detail.(*errdetails.PreconditionFailure)
		for _, v := range failure.GetViolations() {
			if v.GetType() == "MISSING" && v.GetSubject() == d.BlobName() {
				return true
			}
		}
	}
	return false
}
