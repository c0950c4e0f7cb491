// Package quotas simulates instance names that share a farm by quotas. It uses the real scheduler
// core, in virtual time.
package quotas
