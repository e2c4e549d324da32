"""GraphQL with which Dagster's page requests a backfill and follows it."""

LAUNCH = """mutation Launch($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
BACKFILL = """query Backfill($id: String!) { partitionBackfillOrError(backfillId: $id) {
  __typename ... on PythonError { message } ... on PartitionBackfill { status } } }"""
