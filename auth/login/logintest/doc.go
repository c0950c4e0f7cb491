// Package logintest has an OpenID provider for tests. Everybody who asks it is who the test says.
package logintest
