// Package quotas simulates instances that share a farm by quotas, with the real scheduler and in
// virtual time.
package quotas
