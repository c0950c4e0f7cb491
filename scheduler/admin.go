package scheduler

import "github.com/forerunner-build/forerunner/proto/admin"

// adminService is what operators ask and say. Each call looks at every worker once
// under the lock, or in pieces at every operation, and does the rest without it.
type adminService struct {
	*workersAdmin
	queuesAdmin
	operationsAdmin
	*quotas
	sizesAdmin
	storesAdmin
	unimplemented
}

// unimplemented are the calls that no part of adminService has.
type unimplemented struct {
	admin.UnimplementedSchedulerServer
}
