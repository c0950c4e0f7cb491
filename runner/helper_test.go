package runner

func helperMain() {}
