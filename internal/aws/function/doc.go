// Package function is weir as a Lambda function for everything except counting usage: it applies manifests for callers
// without access to the table, invoked directly or as a CloudFormation resource. docs/aws/lambda.md is the manual.
package function
