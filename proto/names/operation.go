package names

// OperationPrefix begins the name of each operation.
const OperationPrefix = "operations/"
