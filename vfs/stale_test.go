package vfs

func serverMain() {}
