// Package durable stores data that a scheduler must not lose: drains, quotas, and the list of
// present workers.
package durable
