// CoreDNS with the plugins that the test cluster's Corefile uses, and no other: which takes a third off its build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

// A query goes through the plugins in this order, whatever the Corefile's.
func init() { dnsserver.Directives = []string{"ready", "errors", "template", "kubernetes"} }

func main() { coremain.Run() }
