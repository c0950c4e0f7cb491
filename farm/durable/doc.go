// Package durable keeps what a scheduler may not lose: drains, quotas, and which workers were there.
package durable
