package main

import "github.com/spf13/cobra"

func execCommand() *cobra.Command { return &cobra.Command{Use: "exec"} }
func demoCommand() *cobra.Command { return &cobra.Command{Use: "demo"} }
