// Package certtest makes authorities and certificates for tests, in files.
package certtest
