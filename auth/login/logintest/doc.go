// Package logintest has an OpenID provider for tests. The test decides who logs in.
package logintest
